// The losses of one point by name, and words that several parts of a sweep's report use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/report/scaling.h"

namespace ddp::report {

// "1 rank", "4 ranks".
std::string ranks(int count);

struct NamedLoss {
  std::string kind;  // a phase's key, "unaccounted" or "outside"
  std::string name;
  std::string brief;  // for the head of a column
  double part = 0;    // of the ideal throughput; negative: a gain
};

// All of them, in the order in which they are drawn.
std::vector<NamedLoss> named_losses(const Losses& losses);

// The largest one, if it is worth telling: more than half a per cent.
std::optional<NamedLoss> biggest_loss(const ScalingPoint& point);

}  // namespace ddp::report
