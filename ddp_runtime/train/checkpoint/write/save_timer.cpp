// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/save_timer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/duration.h"
#include "base/young.h"

namespace ddp::train {

double young_seconds(const SaveCost& cost, double mtbf_seconds) noexcept {
  const double least = std::max(kMinYoungSeconds, kMinDurableTimes * cost.durable);
  const double most = std::max(least, kMaxYoungSeconds);
  return std::clamp(young_interval(cost.stall, mtbf_seconds), least, most);
}

bool SaveTimer::due(TimePoint now) const noexcept {
  const double passed = std::chrono::duration<double>(now - since_).count();
  if (settings_.every_seconds > 0 && passed >= settings_.every_seconds) return true;
  return settings_.young && passed >= young_;
}

std::string SaveTimer::measured(const SaveCost& cost) {
  if (!settings_.young) return {};
  const bool first = announced_ == 0;
  cost_.stall = first ? cost.stall : (cost_.stall + cost.stall) / 2;
  cost_.durable = first ? cost.durable : (cost_.durable + cost.durable) / 2;
  young_ = young_seconds(cost_, settings_.mtbf_seconds);
  constexpr double kNoticeable = 1.5;
  if (!first && young_ < kNoticeable * announced_ && announced_ < kNoticeable * young_) return {};
  announced_ = young_;
  return fmt::format(
      "saves every {} of training from now on ({}): a save stops training for {}{}, and the job is "
      "expected to fail every {} (--mtbf)",
      rounded_duration(young_), settings_.option, rounded_duration(cost_.stall),
      cost_.durable > 0 ? fmt::format(" and is durable after {}", rounded_duration(cost_.durable))
                        : "",
      rounded_duration(settings_.mtbf_seconds));
}

}  // namespace ddp::train
