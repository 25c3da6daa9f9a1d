// SPDX-License-Identifier: Apache-2.0
// Runs work that may hang uninterruptibly, such as a driver call or an untrusted program, in a
// separate process. Every wait has a deadline, and the child dies with this process.
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
  bool errors_too = true;  // include standard error in the output; otherwise discard it
};

struct OutputLimit {
  std::size_t bytes = std::size_t{1} << 20;
  bool kill_beyond = false;  // kill a process that prints more; otherwise read and discard the rest
};

struct SubprocessOutput {
  bool timed_out = false;
  bool too_long = false;
  int exit_code = -1;  // -1 if a signal killed the process
  std::string text;    // the output, up to the limit
};

class Subprocess {
 public:
  // Calls `work` in a forked copy of this process and takes its return value as the output. Call it
  // before starting other threads: the copy would never release the locks that they hold. Throws
  // RuntimeError if no process can be started.
  static Subprocess calling(const std::function<std::string()>& work);
  // Runs a program, found through PATH, without input. The exit code is 127 if the program does not
  // exist. Do not call this in a process that ignores SIGCHLD, since the kernel then discards exit
  // codes. Throws RuntimeError if no process can be started.
  static Subprocess running(const std::vector<std::string>& arguments,
                            const SubprocessOptions& options = {});

  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&&) = delete;
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  // Kills the process and its children if it is still running. Does not wait for a process that is
  // stuck in the kernel.
  ~Subprocess();

  // Collects the output until the process exits. Kills the process if the deadline passes first, or
  // if the output exceeds a limit with kill_beyond. `stop` is polled every 0.1 s: if it returns
  // true, the deadline has passed. Call wait() only once.
  SubprocessOutput wait(Deadline deadline, const OutputLimit& limit = {},
                        const std::function<bool()>& stop = {});

 private:
  Subprocess(pid_t pid, FileDescriptor output);
  std::optional<int> reap_until(Deadline until) noexcept;
  void kill_all() noexcept;

  pid_t pid_ = -1;
  FileDescriptor output_;
};

// Whether the program, a path or a name that PATH has, exists and may be executed.
bool can_be_executed(const std::string& program);

// Returns the standard output of a program that exits with 0 within both limits. Returns nullopt
// otherwise, including if the program cannot be started.
std::optional<std::string> output_of(const std::vector<std::string>& arguments,
                                     std::chrono::milliseconds limit, std::size_t max_bytes);

}  // namespace ddp
