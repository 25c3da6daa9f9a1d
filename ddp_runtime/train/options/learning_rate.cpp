// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.h"

namespace ddp::train {

Schedule parse_schedule(const std::string& name) {
  if (name == "constant") return Schedule::constant;
  if (name == "step") return Schedule::step;
  if (name == "cosine") return Schedule::cosine;
  throw UsageError(fmt::format("unknown schedule '{}'; use constant, step or cosine", name));
}

const char* schedule_name(Schedule schedule) noexcept {
  switch (schedule) {
    case Schedule::constant:
      return "constant";
    case Schedule::step:
      return "step";
    case Schedule::cosine:
      return "cosine";
  }
  return "";
}

double LearningRate::decay(double step, std::int64_t epoch) const noexcept {
  switch (schedule) {
    case Schedule::constant:
      break;
    case Schedule::step:
      return std::pow(decay_factor, static_cast<double>(epoch / decay_epochs));
    case Schedule::cosine: {
      const auto steps = static_cast<double>(std::max<std::int64_t>(total_steps - warmup_steps, 1));
      const double done = std::clamp((step - static_cast<double>(warmup_steps)) / steps, 0.0, 1.0);
      return (1 + std::cos(std::numbers::pi * done)) / 2;
    }
  }
  return 1;
}

double LearningRate::at(double step, std::int64_t epoch) const noexcept {
  const double target = base * scale;
  const auto warmup = static_cast<double>(warmup_steps);
  if (step >= warmup) return target * decay(step, epoch);
  const double start = scale > 1 ? base : 0;
  return start + (target - start) * (step + 1) / (warmup + 1);
}

}  // namespace ddp::train
