// SPDX-License-Identifier: Apache-2.0
// The scaling of a set of runs with different numbers of ranks, and the causes of lost efficiency.
//
// With N ranks, throughput X (samples per second), global batch B, mean step time T, and the
// smallest N as the base 0:
//
//   speedup     S = X / X0
//   efficiency  E = S * N0 / N, both for strong scaling (B fixed) and weak scaling
//               (B proportional to N)
//   ideal step  w T0, w = (B / N) / (B0 / N0): the base's time, with this run's share of the work
//   loss        1 - E = sum over phases of (t_p - w t_p0) / T  + loss outside of the steps
//
// The losses are fractions of the ideal throughput and add up to 1 - E exactly. A phase that became
// faster than its share of the ideal has a negative loss.
//
// Note [Intervals of a sweep]
// Runs of one size differ by chance, and so do those of the base, so an interval includes the noise
// of both. It contains the truth in 90 of 100 sweeps, by Student's distribution. The noise of the
// throughput is measured between runs of the same number of ranks, and counts as the same fraction
// for all numbers, so that few runs of each suffice: two repetitions in all. Phases have noise of
// their own, and need two runs with both numbers of ranks (Welch's test).
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/sample.h"
#include "ddp_runtime/report/record/phase.h"
#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report {

enum class ScalingKind {
  single,  // only one world size
  strong,  // the global batch is constant
  weak,    // the batch per rank is constant
  mixed,   // neither
};

struct Losses {
  std::array<double, kPhases> phases{};                    // by Phase
  std::optional<std::array<Interval, kPhases>> intervals;  // around the means of all runs
  double unaccounted = 0;                                  // time of the step outside all phases
  double outside = 0;  // time outside of the steps, which lowers the efficiency
};

// All runs with one world size.
struct ScalingPoint {
  int world_size = 1;
  std::vector<RunRecord> runs;
  // The run with the median throughput; for an even number of runs, the slower of the middle two.
  // A real run, so that all figures are from the same one. The first run if none has a throughput.
  RunRecord median;
  std::optional<double> slowest;  // range of throughput
  std::optional<double> fastest;
  std::optional<double> speedup;
  std::optional<double> efficiency;
  std::optional<Interval> interval;  // of the efficiency; that of the base is around 1
  std::optional<Losses> losses;      // nullopt for the base, and if a figure is missing
};

struct Scaling {
  ScalingKind kind = ScalingKind::single;
  int base = 1;                      // N0
  std::optional<double> noise;       // relative standard deviation of the throughput of a run
  std::vector<ScalingPoint> points;  // in order of world size
};

// `runs` must not be empty.
Scaling analyze(std::vector<RunRecord> runs);

// The properties in which the runs' work differs ("model", "data", "precision"), so that their
// speeds cannot be compared; empty if none. A property that a run does not record is not compared.
std::vector<std::string> unlike(const Scaling& scaling);

// The throughput, if it is positive.
std::optional<double> throughput(const RunRecord& run);

// The sum of all losses.
double total(const Losses& losses);

// The world sizes above the base whose efficiency is below `minimum` or unknown: an unmeasured
// value does not pass. Includes the base if it is the only world size.
std::vector<int> below(const Scaling& scaling, double minimum);

}  // namespace ddp::report
