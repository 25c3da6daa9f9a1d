// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/extrapolation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "ddp_runtime/report/analysis/growth_fit.h"
#include "ddp_runtime/report/analysis/student.h"

namespace ddp::report {
namespace {

using Models = std::vector<std::vector<Term>>;

constexpr std::size_t kLeastSizes = 4;
constexpr std::size_t kLeastSizesOnSeveralNodes = 3;
constexpr int kMaxMeasuredRanks = 1 << 20;    // of the measured ones
constexpr double kLeastCommunication = 0.01;  // fraction of a step
constexpr double kManyDegrees = 1e9;          // of freedom: the normal distribution

const Models& models_of_computation(ScalingKind kind) {
  static const Models weak = {
      {Term::constant}, {Term::constant, Term::logarithm}, {Term::constant, Term::linear}};
  static const Models strong = {{Term::inverse},
                                {Term::inverse, Term::constant},
                                {Term::inverse, Term::logarithm},
                                {Term::inverse, Term::linear},
                                {Term::inverse, Term::constant, Term::logarithm},
                                {Term::inverse, Term::constant, Term::linear}};
  return kind == ScalingKind::weak ? weak : strong;
}

const Models& models_of_communication() {
  static const Models models = {{Term::constant},
                                {Term::ring},
                                {Term::logarithm},
                                {Term::root},
                                {Term::linear},
                                {Term::constant, Term::logarithm},
                                {Term::constant, Term::root},
                                {Term::constant, Term::linear},
                                {Term::ring, Term::logarithm},
                                {Term::ring, Term::linear},
                                {Term::logarithm, Term::linear}};
  return models;
}

double communication_of(const StepSeconds& step) {
  return step.part(Phase::waiting) + step.part(Phase::exposed_comm);
}

bool is_known(const RunRecord& run) {
  const auto& step = run.step;
  return step.mean && std::isfinite(*step.mean) && *step.mean > 0 &&
         (run.world_size == 1 || step.parts[index_of(Phase::exposed_comm)]);
}

// Means of the runs with one number of ranks.
struct Size {
  int ranks = 1;
  int nodes = 1;  // the fewest of a run
  double step = 0;
  double communication = 0;
  std::vector<const RunRecord*> runs;
};

std::vector<Size> sizes_of(const Scaling& scaling) {
  std::vector<Size> sizes;
  for (const auto& point : scaling.points) {
    Size size{point.world_size, point.world_size, 0, 0, {}};
    for (const auto& run : point.runs) {
      if (!is_known(run)) continue;
      size.nodes = std::min(size.nodes, run.nodes);
      size.step += *run.step.mean;
      size.communication += communication_of(run.step);
      size.runs.push_back(&run);
    }
    if (size.runs.empty()) continue;
    size.step /= static_cast<double>(size.runs.size());
    size.communication /= static_cast<double>(size.runs.size());
    sizes.push_back(std::move(size));
  }
  return sizes;
}

bool on_several_nodes(const Size& size) {
  return size.nodes > 1;
}

bool has_batch(const RunRecord& run) {
  return run.global_batch && *run.global_batch > 0;
}

// Whether the throughput is that of the steps, without time between them.
bool is_of_steps(const RunRecord& run) {
  constexpr double kTolerance = 0.02;
  if (!is_known(run) || !run.samples_per_second) return true;
  return std::abs(*run.samples_per_second * *run.step.mean / *run.global_batch - 1) < kTolerance;
}

bool all_of_runs(const Scaling& scaling, bool (*property)(const RunRecord&)) {
  return std::ranges::all_of(scaling.points, [property](const ScalingPoint& point) {
    return std::ranges::all_of(point.runs, property);
  });
}

std::string refusal_of(const Scaling& scaling, const std::vector<Size>& sizes) {
  if (!all_of_runs(scaling, has_batch)) return "the batch size of a run is unknown.";
  if (!all_of_runs(scaling, is_of_steps)) {
    return "the throughput of a run is not that of its steps: there is time between them.";
  }
  if (!is_known(scaling.points.front().median)) return "the step time of the base is unknown.";
  if (scaling.kind == ScalingKind::mixed) {
    return "neither the global batch nor the batch per rank is the same for all runs.";
  }
  if (sizes.size() < kLeastSizes) {
    return fmt::format(
        "it takes runs with at least {} numbers of ranks whose step and its parts are known; there "
        "are {}.",
        kLeastSizes, sizes.size());
  }
  const auto several = static_cast<std::size_t>(std::ranges::count_if(sizes, on_several_nodes));
  if (several == 0) {
    return "all runs were on one node, so they say nothing about the network between nodes.";
  }
  if (sizes.back().ranks > kMaxMeasuredRanks) {
    return fmt::format("it goes no further than {} ranks.", 4 * kMaxMeasuredRanks);
  }
  if (sizes.back().communication < kLeastCommunication * sizes.back().step) {
    return "backward hides the communication of these runs, so they do not show what it costs when "
           "it is no longer hidden.";
  }
  if (std::ranges::any_of(sizes, [](const Size& s) { return s.communication >= s.step; })) {
    return "the communication of a step takes longer than the step.";
  }
  if (several < kLeastSizesOnSeveralNodes) {
    return fmt::format(
        "it takes at least {} numbers of ranks on several nodes, whose network decides; there {} "
        "{}.",
        kLeastSizesOnSeveralNodes, several == 1 ? "is" : "are", several);
  }
  return "";
}

std::optional<GrowthFit> fit_computation(const std::vector<Size>& sizes, ScalingKind kind) {
  std::vector<TimePoint> points;
  for (const auto& size : sizes) {
    const double mean = size.step - size.communication;
    for (const auto* run : size.runs) {
      points.push_back({size.ranks, *run->step.mean - communication_of(run->step), mean});
    }
  }
  return fit_growth(points, models_of_computation(kind));
}

std::optional<GrowthFit> fit_communication(const std::vector<Size>& sizes) {
  // A small communication time is known less well than to the same fraction of itself.
  constexpr double kLeastError = 0.1;  // as a fraction of the step
  std::vector<TimePoint> points;
  for (const auto& size : sizes) {
    if (!on_several_nodes(size)) continue;
    const double error = std::hypot(size.communication, kLeastError * size.step);
    for (const auto* run : size.runs) {
      points.push_back({size.ranks, communication_of(run->step), error});
    }
  }
  return fit_growth(points, models_of_communication());
}

// Relative standard deviation of one run. Without repetitions, that of the computation around its
// model.
double noise_of_run(const Scaling& scaling, const GrowthFit& computation) {
  const auto& model = computation.best;
  return scaling.noise.value_or(std::sqrt(model.squares / model.degrees));
}

Expected expected(const Scaling& scaling, const GrowthFit& computation,
                  const GrowthFit& communication, int ranks) {
  Expected result;
  result.ranks = ranks;
  const double wire = communication.at(ranks);
  const double work = computation.at(ranks);
  const auto of_wire = communication.interval_at(ranks);
  const auto of_work = computation.interval_at(ranks);
  result.seconds = work + wire;
  result.communication = wire / result.seconds;
  const double less = std::hypot(work - of_work.least, wire - of_wire.least);
  const double more = std::hypot(of_work.most - work, of_wire.most - wire);
  result.seconds_interval = {result.seconds - less, result.seconds + more};
  // As elsewhere in a sweep: relative to the median run of the base.
  const auto& base = scaling.points.front();
  const double share =
      scaling.kind == ScalingKind::strong ? static_cast<double>(base.world_size) / ranks : 1;
  result.efficiency = share * *base.median.step.mean / result.seconds;
  // The standard error of a median of normal values is 1.25 times that of their mean.
  const double factor = base.runs.size() > 2 ? 1.25 : 1;
  const double noise = factor * noise_of_run(scaling, computation) * student_95th(kManyDegrees) /
                       std::sqrt(static_cast<double>(base.runs.size()));
  const double up = std::hypot(more / result.seconds, noise);
  const double down = std::min(std::hypot(less / result.seconds, noise), 0.99);
  result.efficiency_interval = {result.efficiency / (1 + up), result.efficiency / (1 - down)};
  return result;
}

// Whether the ranges say anything.
bool says_something(const Expected& point) {
  constexpr double kWidest = 3;
  const auto is_narrow = [](const Interval& range) { return range.most <= kWidest * range.least; };
  return is_narrow(point.seconds_interval) && is_narrow(point.efficiency_interval);
}

}  // namespace

Extrapolation extrapolate(const Scaling& scaling) {
  const auto sizes = sizes_of(scaling);
  Extrapolation result;
  result.refusal = refusal_of(scaling, sizes);
  if (!result.refusal.empty()) return result;
  const auto computation = fit_computation(sizes, scaling.kind);
  const auto communication = fit_communication(sizes);
  if (!computation || !communication) {
    result.refusal = "the runs are too few for a fit: repeat them, or add numbers of ranks.";
    return result;
  }
  if (!computation->agrees || !communication->agrees) {
    result.refusal = fmt::format(
        "no model agrees with how {} depends on the number of ranks, or something disturbed all "
        "runs of one size; repeat them in separate jobs.",
        computation->agrees ? "communication" : "computation");
    return result;
  }
  const int largest = sizes.back().ranks;
  for (const int times : {2, 4}) {
    auto point = expected(scaling, *computation, *communication, times * largest);
    if (!says_something(point)) break;
    result.points.push_back(point);
  }
  if (result.points.empty()) {
    result.refusal =
        "the runs agree with models that differ by more than a factor of three; more numbers of "
        "ranks, and more runs of each, would decide.";
    return result;
  }
  result.computation = formula_of(computation->best);
  result.communication = formula_of(communication->best);
  return result;
}

}  // namespace ddp::report
