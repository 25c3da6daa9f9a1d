// Work that may hang where nothing can interrupt it, such as a driver or a untrusted program, in a
// process of its own: it is waited for so long and no longer, and dies with the check.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"

namespace ddp::check {

struct ChildOutput {
  bool timed_out = false;
  int exit_code = -1;  // -1 if a signal ended it
  std::string text;    // at most 1 MiB
};

class BoundedChild {
 public:
  // Calls `work` in a copy of this process; what it returns is the child's output. Only before
  // other threads are started: locks that they hold would never be given back in the copy. Throws
  // RuntimeError if no process can be made, here and below.
  static BoundedChild calling(const std::function<std::string()>& work);
  // Runs a program, found in PATH, with what it writes to both its outputs as the child's output.
  // A program that is not there ends with 127. `variables` are added to its environment.
  static BoundedChild running(const std::vector<std::string>& arguments,
                              const std::map<std::string, std::string>& variables = {});

  BoundedChild(BoundedChild&& other) noexcept;
  BoundedChild& operator=(BoundedChild&&) = delete;
  BoundedChild(const BoundedChild&) = delete;
  BoundedChild& operator=(const BoundedChild&) = delete;
  // Kills it if it still runs. A process that the kernel does not let go is left to die by itself.
  ~BoundedChild();

  // Gathers the output until it ends; kills it when the deadline passes first. Once only.
  ChildOutput wait(Clock::time_point deadline);

 private:
  BoundedChild(pid_t pid, FileDescriptor output);
  void end(ChildOutput& result, bool kill_it);

  pid_t pid_ = -1;
  FileDescriptor output_;
};

}  // namespace ddp::check
