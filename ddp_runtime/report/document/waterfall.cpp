// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/document/waterfall.h"

#include <algorithm>
#include <cmath>

namespace ddp::report {
namespace {

Bar bar_of(const WaterfallStep& step, double from, double to) {
  const double begin = std::min(from, to);
  const Segment segment{step.kind, step.name, std::max(from, to) - begin, step.label};
  return {step.name, {segment}, step.label, begin};
}

}  // namespace

std::vector<Bar> waterfall(const WaterfallStep& from, const std::vector<WaterfallStep>& changes,
                           const WaterfallStep& to) {
  constexpr double kWorthDrawing = 0.0005;  // of the larger total
  const double least = kWorthDrawing * std::max(std::abs(from.value), std::abs(to.value));
  std::vector<Bar> bars{bar_of(from, 0, from.value)};
  double total = from.value;
  for (const auto& change : changes) {
    if (!std::isfinite(change.value)) continue;
    const double next = total + change.value;
    if (std::abs(change.value) >= least) bars.push_back(bar_of(change, total, next));
    total = next;
  }
  bars.push_back(bar_of(to, 0, to.value));
  return bars;
}

}  // namespace ddp::report
