// SPDX-License-Identifier: Apache-2.0
// Wakes a thread that is blocked in poll(2).
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/errors.h"
#include "base/file_descriptor.h"

namespace ddp {

class WakeEvent {
 public:
  WakeEvent() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_) throw RuntimeError("cannot create an eventfd");
  }
  int fd() const noexcept { return fd_.get(); }
  void notify() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
  }
  void clear() const noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(fd_.get(), &count, sizeof count);
  }

 private:
  FileDescriptor fd_;
};

}  // namespace ddp
