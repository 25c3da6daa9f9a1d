// How a set of runs with different numbers of ranks scaled, and where the loss went.
//
// With N ranks, throughput X (samples per second), global batch B, mean step time T, and the
// smallest N as the base 0:
//
//   speedup     S = X / X0
//   efficiency  E = S * N0 / N          one definition for strong scaling (B fixed) and weak
//   scaling
//                                       (B proportional to N)
//   ideal step  w T0, w = (B / N) / (B0 / N0): the base's time, with this run's share of the work
//   loss        1 - E = sum over phases of (t_p - w t_p0) / T  + what happened outside of the steps
//
// The losses are parts of the ideal throughput and add up to 1 - E exactly. A phase that became
// faster than its share of the ideal has a negative loss.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/report/phase.h"
#include "ddp_runtime/report/run_record.h"

namespace ddp::report {

enum class ScalingKind {
  single,  // one world size only
  strong,  // the same global batch throughout
  weak,    // the same batch per rank throughout
  mixed,   // neither
};

struct Losses {
  std::array<double, kPhases> phases{};  // by Phase
  double unaccounted = 0;                // of the step, in no phase
  double outside = 0;                    // not in the steps: efficiency counts it, the steps do not
};

// All runs with one world size.
struct ScalingPoint {
  int world_size = 1;
  std::vector<RunRecord> runs;
  // The run whose throughput is the middle one, of an even number the slower of the two: so that
  // its parts belong together. If no run has a throughput, the first.
  RunRecord median;
  std::optional<double> slowest;  // throughput of the runs
  std::optional<double> fastest;
  std::optional<double> speedup;
  std::optional<double> efficiency;
  // Of the slowest run against the base's fastest one, and the other way round.
  std::optional<double> least_efficiency;
  std::optional<double> most_efficiency;
  std::optional<Losses> losses;  // absent at the base, and where a figure is missing
};

struct Scaling {
  ScalingKind kind = ScalingKind::single;
  int base = 1;                      // N0
  std::vector<ScalingPoint> points;  // by world size
};

// `runs` must not be empty.
Scaling analyze(std::vector<RunRecord> runs);

// In what the runs are different work ("model", "data", "number of parameters"), so that their
// speeds do not compare; empty if in nothing.
std::vector<std::string> unlike(const Scaling& scaling);

// The sum of all losses.
double total(const Losses& losses);

// The world sizes above the base whose efficiency is below `minimum`, or unknown: what nobody could
// measure has not passed. Also the base if there is no other.
std::vector<int> below(const Scaling& scaling, double minimum);

}  // namespace ddp::report
