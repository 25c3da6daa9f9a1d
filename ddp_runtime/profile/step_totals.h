// SPDX-License-Identifier: Apache-2.0
// Summarizes a run of any length in constant memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::profile {

// Adds steps one by one; the summary matches that of summarize(). Percentiles are exact for the
// first kExact measured steps, and accurate to 1 % after that.
class StepTotals {
 public:
  static constexpr std::size_t kExact = 2048;

  explicit StepTotals(std::size_t warmup) : warmup_(warmup) {}

  void add(const StepRecord& step);
  StepSummary summary() const;

  std::size_t steps() const noexcept { return steps_; }  // warm-up included
  double seconds() const noexcept { return seconds_; }   // of all steps

 private:
  // Bins of constant ratio, from one microsecond to one day.
  static constexpr double kLeast = 1e-6;
  static constexpr double kRatio = 1.01;
  static constexpr std::size_t kBins = 2560;

  static std::size_t bin_of(double seconds) noexcept;
  double percentile_of(double p) const;

  std::size_t warmup_;
  std::size_t steps_ = 0;
  double seconds_ = 0;
  std::vector<StepRecord> first_;  // kept until the number of warm-up steps is known
  StepSummary sums_;               // sums, not means, of the steps after the warm-up
  std::uint64_t bytes_ = 0;        // summed as an integer, so that equal steps have an integer mean
  std::vector<double> exact_;
  std::vector<std::uint64_t> bins_;
};

}  // namespace ddp::profile
