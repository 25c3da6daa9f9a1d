// SPDX-License-Identifier: Apache-2.0
// The process-wide lock and the error stack of libhdf5.

#include "hdf5_ckpt/core/hdf5_handle.h"

#include <fmt/format.h>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

// Keeps the first entry, which has the cause: H5E_WALK_UPWARD starts at the innermost call.
herr_t keep_first(unsigned depth, const H5E_error2_t* entry, void* text) {
  if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

}  // namespace

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

Hdf5Session::Hdf5Session() : lock_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Session::~Hdf5Session() {
  H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
}

void throw_hdf5_error(const std::string& action) {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  H5Eclear2(H5E_DEFAULT);
  throw Error(fmt::format("HDF5 cannot {}: {}", action, reason));
}

}  // namespace ddp::ckpt
