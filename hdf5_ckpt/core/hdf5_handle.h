// SPDX-License-Identifier: Apache-2.0
// Safe use of libhdf5: handles that close themselves, exceptions with the library's own error
// texts, and one lock around every call in the process, because builds of libhdf5 differ in thread
// safety.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

namespace ddp::ckpt {

// The lock that is held during every call of libhdf5.
std::recursive_mutex& hdf5_mutex();

// Holds the process-wide lock and suppresses libhdf5's messages while it lives. May be nested.
class Hdf5Session {
 public:
  Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;
  ~Hdf5Session();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// Throws Error "HDF5 cannot <action>: <innermost reason of the library's error stack>".
[[noreturn]] void throw_hdf5_error(const std::string& action);

// Returns the result of an HDF5 call; negative means failure.
template <typename Result>
Result hdf5_check(Result result, const std::string& action) {
  if (result < 0) throw_hdf5_error(action);
  return result;
}

template <herr_t (*kClose)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  // Owns `id`, the result of an HDF5 call; throws if it is an error.
  Hdf5Handle(hid_t id, const std::string& action) : id_(hdf5_check(id, action)) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : id_(std::exchange(other.id_, static_cast<hid_t>(H5I_INVALID_HID))) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  ~Hdf5Handle() {
    if (id_ < 0) return;
    const std::lock_guard lock(hdf5_mutex());
    kClose(id_);
  }

  hid_t get() const noexcept { return id_; }

  // Closes explicitly, for callers that must detect a failure.
  void close(const std::string& action) {
    hdf5_check(kClose(std::exchange(id_, static_cast<hid_t>(H5I_INVALID_HID))), action);
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using Hdf5File = Hdf5Handle<H5Fclose>;
using Hdf5Group = Hdf5Handle<H5Gclose>;
using Hdf5Dataset = Hdf5Handle<H5Dclose>;
using Hdf5Attribute = Hdf5Handle<H5Aclose>;
using Hdf5Space = Hdf5Handle<H5Sclose>;
using Hdf5Type = Hdf5Handle<H5Tclose>;
using Hdf5Properties = Hdf5Handle<H5Pclose>;

}  // namespace ddp::ckpt
