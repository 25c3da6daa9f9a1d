// SPDX-License-Identifier: Apache-2.0
// A program started as a child process that exchanges lines of text with this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace ddp::bench {

class ChildProcess {
 public:
  // Starts `arguments[0]`, an absolute path, with this process's environment and standard error.
  // Throws RuntimeError if that fails.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  // Closes the child's input, which asks it to exit, and waits; kills it if that takes too long.
  ~ChildProcess();

  // Both throw RuntimeError if the child has exited. Lines are passed without their line feed.
  void write_line(const std::string& line);
  // Blocks until the child has written a complete line.
  std::string read_line();

 private:
  [[noreturn]] void throw_gone() const;

  std::string program_;
  pid_t pid_ = -1;
  FileDescriptor to_child_;
  FileDescriptor from_child_;
  std::string unread_;
};

}  // namespace ddp::bench
