// SPDX-License-Identifier: Apache-2.0
// The response to failed saves: training continues after one, and stops after several in a row.
#pragma once

#include <cstdint>
#include <string>

#include "base/run_log.h"

namespace ddp::train {

class SaveFailures {
 public:
  static constexpr int kMaxInARow = 3;

  // `log` must outlive this object.
  explicit SaveFailures(const RunLog& log) : log_(log) {}

  // From now on, saves are those after the last step, which the caller retries: a failure causes
  // only a warning.
  void begin_last_save() noexcept { last_save_ = true; }
  void end_last_save() noexcept { last_save_ = false; }
  bool in_last_save() const noexcept { return last_save_; }

  // Records the result of a save; `problem` is empty if it succeeded. Logs a warning after a
  // failure; throws RuntimeError after kMaxInARow failures in a row.
  void record(std::int64_t step, const std::string& problem);

  // The latest failure; empty if there was none.
  const std::string& problem() const noexcept { return problem_; }

 private:
  const RunLog& log_;
  int in_a_row_ = 0;
  bool last_save_ = false;
  std::string problem_;
};

}  // namespace ddp::train
