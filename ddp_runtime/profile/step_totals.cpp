// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/step_totals.h"

#include <algorithm>
#include <cmath>

namespace ddp::profile {

void StepTotals::add(const StepRecord& step) {
  ++steps_;
  seconds_ += step.total();
  if (first_.size() < 2 * warmup_) first_.push_back(step);
  if (steps_ <= warmup_) return;
  ++sums_.steps;
  sums_.mean += step.total();
  sums_.other_mean += step.other();
  for (std::size_t p = 0; p < kPhases; ++p) sums_.phase_means[p] += step.seconds[p];
  bytes_ += step.communication_bytes;
  sums_.communication_seconds += step.communication_seconds;
  sums_.hidden_seconds += step.hidden_seconds;
  if (exact_.size() < kExact) exact_.push_back(step.total());
  bins_.resize(kBins);
  ++bins_[bin_of(step.total())];
}

StepSummary StepTotals::summary() const {
  if (steps_ < 2 * warmup_ || sums_.steps == 0) return summarize(first_, warmup_);
  const double share = 1.0 / static_cast<double>(sums_.steps);
  StepSummary means = sums_;
  means.mean *= share;
  means.other_mean *= share;
  for (double& phase : means.phase_means) phase *= share;
  means.communication_bytes = static_cast<double>(bytes_) / static_cast<double>(sums_.steps);
  means.communication_seconds *= share;
  means.hidden_seconds *= share;
  means.p50 = percentile_of(0.5);
  means.p95 = percentile_of(0.95);
  return means;
}

std::size_t StepTotals::bin_of(double seconds) noexcept {
  if (!(seconds > kLeast)) return 0;
  const double bin = std::log(seconds / kLeast) / std::log(kRatio);
  return std::min(static_cast<std::size_t>(bin), kBins - 1);
}

double StepTotals::percentile_of(double p) const {
  if (sums_.steps <= kExact) return percentile(exact_, p);
  const auto rank = static_cast<std::uint64_t>(std::ceil(p * static_cast<double>(sums_.steps)));
  std::uint64_t seen = 0;
  std::size_t bin = 0;
  while (bin + 1 < kBins && seen + bins_[bin] < rank) seen += bins_[bin++];
  return kLeast * std::pow(kRatio, static_cast<double>(bin) + 0.5);
}

}  // namespace ddp::profile
