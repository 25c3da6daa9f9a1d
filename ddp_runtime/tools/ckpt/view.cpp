// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt view: writes one HDF5 file in which h5py sees every array as a whole.

#include "hdf5_ckpt/read/view.h"

#include <fmt/format.h>

#include <cstdio>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/paths.h"

namespace ddp::ckpt::tool {

int run_view(const std::filesystem::path& path) {
  const std::filesystem::path view = make_view(Checkpoint::open(checkpoint_at(path)));
  fmt::print("{}\n", view.string());
  return 0;
}

}  // namespace ddp::ckpt::tool
