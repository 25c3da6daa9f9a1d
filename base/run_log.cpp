// SPDX-License-Identifier: Apache-2.0
#include "base/run_log.h"

#include <cstdio>
#include <utility>

namespace ddp {

RunLog::RunLog(LogFunction log) : log_(std::move(log)) {}

void RunLog::line(const std::string& text) const {
  if (log_) return log_(text);
  std::fputs((text + "\n").c_str(), stdout);
  static_cast<void>(std::fflush(stdout));
}

void RunLog::warning(const std::string& text) const {
  const auto whole = "warning: " + text;
  if (log_) return log_(whole);
  std::fputs((whole + "\n").c_str(), stderr);
}

}  // namespace ddp
