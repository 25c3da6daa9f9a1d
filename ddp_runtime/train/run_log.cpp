// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run_log.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace ddp::train {

RunLog::RunLog(LogFunction log) : log_(std::move(log)) {}

void RunLog::line(const std::string& text) const {
  if (log_) return log_(text);
  fmt::print("{}\n", text);
  static_cast<void>(std::fflush(stdout));
}

void RunLog::warning(const std::string& text) const {
  const auto whole = "warning: " + text;
  if (log_) return log_(whole);
  fmt::print(stderr, "{}\n", whole);
}

}  // namespace ddp::train
