// SPDX-License-Identifier: Apache-2.0
// The processes that a task has started and that outlive it. They become children of the guard.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp::guard {

class Leftovers {
 public:
  // Whether there are any that have not been reaped.
  static bool exist() noexcept;

  // Sends SIGTERM to each that has not got one yet.
  void ask();
  // Sends SIGKILL to all.
  void force();

  // The names of those that were asked or forced.
  const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  bool add(pid_t process);

  std::vector<pid_t> asked_;
  std::vector<std::string> names_;
};

}  // namespace ddp::guard
