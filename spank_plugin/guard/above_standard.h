// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "base/file_descriptor.h"

namespace ddp::guard {

// Returns the file under a number that is no standard stream's, although one of these is closed.
inline FileDescriptor above_standard(FileDescriptor file) noexcept {
  if (file.get() > STDERR_FILENO) return file;
  return FileDescriptor(fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

}  // namespace ddp::guard
