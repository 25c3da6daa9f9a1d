// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/save_failures.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/errors.h"

namespace ddp::train {

void SaveFailures::record(std::int64_t step, const std::string& problem) {
  if (problem.empty()) {
    in_a_row_ = 0;
    return;
  }
  problem_ = problem;
  if (last_save_) {
    fmt::print(stderr, "warning: the checkpoint of step {} was not saved: {}\n", step, problem);
    return;
  }
  ++in_a_row_;
  if (in_a_row_ >= kMaxInARow) {
    throw RuntimeError(
        fmt::format("{} checkpoints in a row could not be saved: {}", in_a_row_, problem));
  }
  fmt::print(stderr, "warning: the checkpoint of step {} was not saved, training continues: {}\n",
             step, problem);
}

}  // namespace ddp::train
