// SPDX-License-Identifier: Apache-2.0
// Work that may hang where nothing can interrupt it, such as a driver or an untrusted program, in a
// process of its own: it is waited for so long and no longer, and dies with this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"

namespace ddp {

struct SubprocessOptions {
  std::map<std::string, std::string> variables = {};  // added to the environment
  bool errors_too = true;  // standard error belongs to the output; otherwise it goes nowhere
};

struct OutputLimit {
  std::size_t bytes = std::size_t{1} << 20;
  bool kill_beyond = false;  // otherwise the rest is read and dropped
};

struct SubprocessOutput {
  bool timed_out = false;
  bool too_long = false;
  int exit_code = -1;  // -1 if a signal ended it
  std::string text;    // within the limit
};

class Subprocess {
 public:
  // Calls `work` in a copy of this process; what it returns is the output. Only before other
  // threads are started: locks that they hold would never be given back in the copy. Throws
  // RuntimeError if no process can be made, here and below.
  static Subprocess calling(const std::function<std::string()>& work);
  // Runs a program, found in PATH, without input. One that is not there exits with 127. Must not be
  // called where this process's SIGCHLD is ignored: then no exit code is known.
  static Subprocess running(const std::vector<std::string>& arguments,
                            const SubprocessOptions& options = {});

  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&&) = delete;
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  // Kills it, with all that it has started, if it still runs. A process that the kernel does not
  // let go is left to die by itself.
  ~Subprocess();

  // Gathers the output until the process exits; kills it when the deadline passes first, or when
  // the output is longer than the limit allows. Once only.
  SubprocessOutput wait(Deadline deadline, const OutputLimit& limit = {});

 private:
  Subprocess(pid_t pid, FileDescriptor output);
  std::optional<int> reap_until(Deadline until) noexcept;
  void kill_all() noexcept;

  pid_t pid_ = -1;
  FileDescriptor output_;
};

// The standard output of a program that exits with 0 within the limits; nullopt otherwise, also if
// it cannot be started.
std::optional<std::string> output_of(const std::vector<std::string>& arguments,
                                     std::chrono::milliseconds limit, std::size_t max_bytes);

}  // namespace ddp
