// SPDX-License-Identifier: Apache-2.0
// The losses of one point by name, and words used in several parts of a sweep's report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/scaling.h"

namespace ddp::report {

// "1 rank", "4 ranks".
std::string ranks(int count);

struct NamedLoss {
  std::string kind;  // a phase's key, "unaccounted" or "outside"
  std::string name;
  std::string brief;                      // for column headings
  double part = 0;                        // fraction of the ideal throughput; negative: a gain
  std::optional<Interval> interval = {};  // if known
};

// All losses, in drawing order.
std::vector<NamedLoss> named_losses(const Losses& losses);

// The largest loss, or nullopt if it is half a percent or less.
std::optional<NamedLoss> biggest_loss(const ScalingPoint& point);

// The second largest loss, if the noise between runs does not allow to say that it is smaller than
// the largest.
std::optional<NamedLoss> rival_of_biggest_loss(const ScalingPoint& point);

}  // namespace ddp::report
