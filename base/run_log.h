// SPDX-License-Identifier: Apache-2.0
// Where a run's lines go: to the output of the process, or to the program's own log.
#pragma once

#include <functional>
#include <string>

namespace ddp {

using LogFunction = std::function<void(const std::string& line)>;

class RunLog {
 public:
  // With `log`, every line goes there and nothing is printed.
  explicit RunLog(LogFunction log = {});

  // Prints a line on stdout.
  void line(const std::string& text) const;
  // Prints "warning: <text>" on stderr.
  void warning(const std::string& text) const;

 private:
  LogFunction log_;
};

}  // namespace ddp
