// SPDX-License-Identifier: Apache-2.0
// Splits the process that is about to become a task in two: a child that continues as the user's
// program, and its parent, which keeps the process number that the launcher knows and becomes the
// guard.
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/file_descriptor.h"

namespace ddp::guard {

// The parent's side. All its signals are blocked, so that none is lost before the guard reads them.
struct ForkedTask {
  pid_t child = -1;
  FileDescriptor errors;  // what the child writes to standard error; none if that is a terminal
};

// Returns nullopt in the child, which the kernel kills when the parent dies. It leads a process
// group, as a task does, except on a terminal: there it stays in the group that the terminal
// signals. If standard output and standard error are one file or pipe, both go through the guard,
// so that they keep their order. Throws RuntimeError, in a process that is still one, if the kernel
// has no process or pipe left.
std::optional<ForkedTask> fork_task();

// Whether this process has a controlling terminal.
bool has_terminal() noexcept;

}  // namespace ddp::guard
