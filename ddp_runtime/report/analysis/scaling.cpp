// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/scaling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "ddp_runtime/report/analysis/scaling_intervals.h"

namespace ddp::report {
namespace {

std::vector<ScalingPoint> group(std::vector<RunRecord> runs) {
  std::map<int, ScalingPoint> by_size;
  for (auto& run : runs) {
    ScalingPoint& point = by_size[run.world_size];
    point.world_size = run.world_size;
    point.runs.push_back(std::move(run));
  }
  std::vector<ScalingPoint> points;
  points.reserve(by_size.size());
  for (auto& [size, point] : by_size) points.push_back(std::move(point));
  return points;
}

void summarize(ScalingPoint& point) {
  std::vector<const RunRecord*> measured;
  for (const auto& run : point.runs) {
    if (throughput(run)) measured.push_back(&run);
  }
  if (measured.empty()) {
    point.median = point.runs.front();
    return;
  }
  std::sort(measured.begin(), measured.end(), [](const RunRecord* a, const RunRecord* b) {
    return *a->samples_per_second < *b->samples_per_second;
  });
  point.median = *measured[(measured.size() - 1) / 2];
  point.slowest = measured.front()->samples_per_second;
  point.fastest = measured.back()->samples_per_second;
}

// Whether `value` is known and equal, up to rounding, for all runs.
template <class Value>
bool same_for_all(const std::vector<ScalingPoint>& points, const Value& value) {
  std::optional<double> first;
  for (const auto& point : points) {
    for (const auto& run : point.runs) {
      const std::optional<double> here = value(run);
      if (!here) return false;
      if (!first) first = here;
      if (std::abs(*here - *first) > 1e-9 * std::abs(*first)) return false;
    }
  }
  return true;
}

ScalingKind kind_of(const std::vector<ScalingPoint>& points) {
  if (points.size() < 2) return ScalingKind::single;
  if (same_for_all(points, [](const RunRecord& run) { return run.global_batch; })) {
    return ScalingKind::strong;
  }
  const auto per_rank = [](const RunRecord& run) {
    return run.global_batch ? std::optional(*run.global_batch / run.world_size) : std::nullopt;
  };
  return same_for_all(points, per_rank) ? ScalingKind::weak : ScalingKind::mixed;
}

std::optional<Losses> attribute(const ScalingPoint& base, const ScalingPoint& point) {
  const RunRecord& from = base.median;
  const RunRecord& to = point.median;
  if (!point.efficiency || !from.step.mean || !to.step.mean || *to.step.mean <= 0 ||
      !from.global_batch || !to.global_batch || *from.global_batch <= 0) {
    return std::nullopt;
  }
  const double share = (*to.global_batch / to.world_size) / (*from.global_batch / from.world_size);
  const auto loss = [&](double at_base, double here) {
    return (here - share * at_base) / *to.step.mean;
  };
  Losses losses;
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    losses.phases[index_of(phase)] = loss(from.step.part(phase), to.step.part(phase));
  }
  losses.unaccounted = loss(from.step.unaccounted().value_or(0), to.step.unaccounted().value_or(0));
  losses.outside = 0;
  losses.outside = 1 - *point.efficiency - total(losses);
  losses.intervals = loss_intervals(base, point, share);
  return losses;
}

void compare_with_base(const ScalingPoint& base, ScalingPoint& point, const Noise& noise) {
  const auto from = throughput(base.median);
  const auto to = throughput(point.median);
  if (!from || !to) return;
  const double share = static_cast<double>(base.world_size) / point.world_size;
  point.speedup = *to / *from;
  point.efficiency = *point.speedup * share;
  point.interval = efficiency_interval(base, point, noise);
  if (point.world_size != base.world_size) point.losses = attribute(base, point);
}

}  // namespace

std::optional<double> throughput(const RunRecord& run) {
  const auto& value = run.samples_per_second;
  return value && *value > 0 ? value : std::nullopt;
}

double total(const Losses& losses) {
  return std::accumulate(losses.phases.begin(), losses.phases.end(), 0.0) + losses.unaccounted +
         losses.outside;
}

Scaling analyze(std::vector<RunRecord> runs) {
  Scaling scaling;
  scaling.points = group(std::move(runs));
  for (auto& point : scaling.points) summarize(point);
  scaling.kind = kind_of(scaling.points);
  scaling.base = scaling.points.front().world_size;
  const ScalingPoint base = scaling.points.front();
  const auto noise = noise_of(scaling.points);
  if (noise.is_known()) scaling.noise = std::expm1(noise.deviation());
  for (auto& point : scaling.points) compare_with_base(base, point, noise);
  return scaling;
}

std::vector<std::string> unlike(const Scaling& scaling) {
  std::vector<std::string> what;
  const auto differ = [&](const char* name, auto value) {
    std::set<std::string> values;
    for (const auto& point : scaling.points) {
      for (const auto& run : point.runs) {
        if (const std::string text = value(run); !text.empty()) values.insert(text);
      }
    }
    if (values.size() > 1) what.emplace_back(name);
  };
  differ("model", [](const RunRecord& run) { return run.model; });
  differ("data", [](const RunRecord& run) { return run.data; });
  differ("number of parameters", [](const RunRecord& run) {
    return run.parameters ? std::to_string(std::llround(*run.parameters)) : std::string();
  });
  // Runs of older versions have no settings.
  constexpr std::pair<const char*, const char*> kWork[] = {
      {"precision", "precision"},
      {"param_type", "type of the weights"},
      {"reduce_type", "type of the reduction"},
      {"comm_hook", "comm hook"},
      {"accumulate", "micro-batches per step"},
      {"blocks", "blocks per step"},
      {"optimizer", "optimizer"},
      {"staleness", "staleness"},
      {"local_steps", "local steps"},
      {"deterministic", "deterministic sums"},
      {"checkpoint_activations", "activation checkpointing"},
      {"channels_last", "channels-last memory"},
      {"graph", "graphs"},
      {"augment", "augmentation"},
      {"heads", "attention heads"}};
  for (const auto& [key, name] : kWork) {
    differ(name, [key = key](const RunRecord& run) {
      const auto found = run.settings.find(key);
      return found == run.settings.end() ? std::string() : found->second;
    });
  }
  return what;
}

std::vector<int> below(const Scaling& scaling, double minimum) {
  if (scaling.points.size() < 2) return {scaling.base};
  std::vector<int> sizes;
  for (const auto& point : scaling.points) {
    if (point.world_size == scaling.base) continue;
    if (!point.efficiency || *point.efficiency < minimum) sizes.push_back(point.world_size);
  }
  return sizes;
}

}  // namespace ddp::report
