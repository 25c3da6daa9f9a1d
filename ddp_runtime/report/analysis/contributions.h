// SPDX-License-Identifier: Apache-2.0
// What each phase contributes to the difference in step time between two groups of runs. No side
// effects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/scaling.h"

namespace ddp::report {

struct Contribution {
  std::string kind;  // a phase's key, or "unaccounted"
  std::string name;  // "data", "waiting for other ranks"
  std::string who;   // "rank 5 on n5": the rank that the others wait for; may be empty
  double a = 0;      // seconds of A's step, mean of all runs
  double b = 0;      // seconds that B takes for as many samples per rank
  double part = 0;   // b - a as a fraction of A's step
  // Contains the truth in 98 of 100 comparisons; nullopt with fewer than four runs in all.
  std::optional<Interval> interval = {};
  bool single_runs = false;  // one run on each side: told although the noise is unknown

  // "waiting for rank 5 on n5"
  std::string full_name() const;
  // Whether it is at least a hundredth of A's step, and not explained by noise.
  bool is_worth_telling() const;
};

// Largest first. The parts sum to the relative change of the time per sample and rank. A phase that
// some run does not record counts as unaccounted on both sides, and waiting as exposed
// communication. Empty if no run of a group has a mean step time and a batch size.
std::vector<Contribution> contributions(const ScalingPoint& a, const ScalingPoint& b);

// "+9.0 % waiting for rank 5 on n5, +3.0 % data": the largest that are worth telling; may be empty.
std::string sentence_of(const std::vector<Contribution>& contributions);

}  // namespace ddp::report
