// SPDX-License-Identifier: Apache-2.0
// The learning rate of every step. No side effects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ddp::train {

enum class Schedule : std::uint8_t { constant, step, cosine };

// Throws UsageError listing the available schedules.
Schedule parse_schedule(const std::string& name);

// The inverse of parse_schedule.
const char* schedule_name(Schedule schedule) noexcept;

// The linear scaling rule with gradual warm-up (Goyal et al., "Accurate, Large Minibatch SGD",
// 2017): a global batch that is k times as large uses a rate k times as large, reached from the
// unscaled rate by equal increments over the warm-up. Without scaling the warm-up starts from 0.
// After the warm-up the schedule decays the rate: `step` multiplies it by decay_factor every
// decay_epochs epochs, `cosine` takes it to 0 at the end of the run (Loshchilov and Hutter, "SGDR",
// 2017, without restarts).
struct LearningRate {
  double base = 0.05;  // for a global batch of one micro-batch on one rank
  double scale = 1;    // k
  std::int64_t warmup_steps = 0;
  Schedule schedule = Schedule::constant;
  std::int64_t decay_epochs = 30;  // step schedule only
  double decay_factor = 0.1;
  std::int64_t total_steps = 0;  // cosine schedule only: steps of the whole run

  // `step` and `epoch` start at 0. After a resume with another global batch, `step` is in steps of
  // the first one (scheduled_step()), and may be between two.
  double at(double step, std::int64_t epoch = 0) const noexcept;

 private:
  double decay(double step, std::int64_t epoch) const noexcept;
};

// A schedule of the program's own.
struct SchedulePoint {
  std::int64_t step = 0;  // from 0
  std::int64_t epoch = 0;
  std::int64_t planned_steps = 0;  // of the whole run
};
using ScheduleFunction = std::function<double(const SchedulePoint& point)>;

}  // namespace ddp::train
