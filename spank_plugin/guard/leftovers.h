// SPDX-License-Identifier: Apache-2.0
// The processes that a task has started and that outlive it. They become children of the guard.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace ddp::guard {

class Leftovers {
 public:
  // Whether there are any that have not been reaped.
  static bool exist() noexcept;

  // Ends them: SIGTERM, and SIGKILL for those that are still there after `time_to_end`. Calls
  // `wait` in between, which must reap those that have ended, until something happens or the
  // deadline passes, and returns whether it is of no use to wait longer.
  void end(Clock::duration time_to_end, const std::function<bool(Deadline)>& wait);

  // The names of those that it has ended, and "2 processes behind, now ended: tee, python3".
  const std::vector<std::string>& names() const noexcept { return names_; }
  std::string text() const;

 private:
  void ask();
  void force();
  bool add(pid_t process);

  std::vector<pid_t> asked_;
  std::vector<std::string> names_;
};

}  // namespace ddp::guard
