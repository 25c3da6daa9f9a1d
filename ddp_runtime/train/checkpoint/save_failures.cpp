// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/save_failures.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {

void SaveFailures::record(std::int64_t step, const std::string& problem) {
  if (problem.empty()) {
    in_a_row_ = 0;
    return;
  }
  problem_ = problem;
  if (last_save_) {
    log_.warning(fmt::format("the checkpoint of step {} was not saved: {}", step, problem));
    return;
  }
  ++in_a_row_;
  if (in_a_row_ >= kMaxInARow) {
    throw RuntimeError(
        fmt::format("{} checkpoints in a row could not be saved: {}", in_a_row_, problem));
  }
  log_.warning(fmt::format("the checkpoint of step {} was not saved, training continues: {}", step,
                           problem));
}

}  // namespace ddp::train
