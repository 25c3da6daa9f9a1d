// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/threshold.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ddp::check {
double median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(sorted.begin(), middle)) / 2;
}

PeerThresholds thresholds_of(std::span<const double> values, const PeerRule& rule) {
  const double middle = median(values);
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - middle));
  // The factor 1.4826 converts the MAD of normally distributed values to their standard deviation.
  const double spread = std::min(3.5 * 1.4826 * median(deviations), kWidestSpread * middle);
  return {middle, middle - std::max(spread, rule.warning * middle),
          middle - std::max(spread, rule.critical * middle)};
}

std::optional<PeerThresholds> peer_thresholds(std::span<const double> values,
                                              const PeerRule& rule) {
  if (values.size() < kMinPeers) return std::nullopt;
  return thresholds_of(values, rule);
}

Severity evaluate_by_peers(double value, const PeerThresholds& thresholds) noexcept {
  if (value < thresholds.critical) return Severity::critical;
  return value < thresholds.warning ? Severity::warning : Severity::ok;
}

Severity evaluate_by_link(double fraction, const LinkRule& rule) noexcept {
  if (fraction < rule.critical) return Severity::critical;
  return fraction < rule.warning ? Severity::warning : Severity::ok;
}

}  // namespace ddp::check
