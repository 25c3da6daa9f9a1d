// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace ddp::pipeline {
namespace {

using enum OperationKind;

// When each stage had passed on its result, by direction, stage and micro-batch.
using Ends = std::map<std::pair<bool, std::pair<int, int>>, double>;

void note_ends(const RankTimes& rank, Ends& ends) {
  for (const auto& one : rank) {
    if (one.operation.kind == weight_gradient) continue;
    ends[{one.operation.kind == forward, {one.operation.stage, one.operation.micro_batch}}] =
        one.end;
  }
}

// How much later the rank must have begun for what it received to have been sent, by ranks in
// `ends`.
double delay_of(const RankTimes& rank, const Ends& ends) {
  double delay = 0;
  bool is_first = true;
  for (const auto& one : rank) {
    if (one.operation.kind != forward) continue;
    const auto sent = ends.find({true, {one.operation.stage - 1, one.operation.micro_batch}});
    if (sent == ends.end()) continue;
    const double later = sent->second - (one.begin + one.waited);
    delay = is_first ? later : std::max(delay, later);
    is_first = false;
  }
  return delay;
}

char letter_of(const Operation& operation) {
  const auto number = operation.micro_batch;
  if (operation.kind == forward) return static_cast<char>('0' + number % 10);
  return static_cast<char>((operation.kind == weight_gradient ? 'A' : 'a') + number % 26);
}

void add_to(StageTimes& stage, OperationKind kind, double seconds) {
  if (kind == forward) {
    stage.forward += seconds;
  } else if (kind == weight_gradient) {
    stage.weight_gradient += seconds;
  } else {
    stage.input_gradient += seconds;
  }
}

StageTimes mean_of(const std::vector<StageTimes>& stages) {
  StageTimes mean{0, 0, 0};
  const auto count = static_cast<double>(stages.size());
  for (const auto& stage : stages) {
    mean.forward += stage.forward / count;
    mean.input_gradient += stage.input_gradient / count;
    mean.weight_gradient += stage.weight_gradient / count;
  }
  return mean;
}

}  // namespace

std::vector<RankTimes> aligned(std::vector<RankTimes> ranks) {
  Ends ends;
  for (auto& rank : ranks) {
    const double delay = delay_of(rank, ends);
    for (auto& one : rank) {
      one.begin += delay;
      one.end += delay;
    }
    note_ends(rank, ends);
  }
  return ranks;
}

std::string draw_timeline(const std::vector<RankTimes>& ranks, int columns) {
  const auto moved = aligned(ranks);
  double end = 0;
  for (const auto& rank : moved) {
    for (const auto& one : rank) end = std::max(end, one.end);
  }
  std::string chart;
  for (std::size_t r = 0; r < moved.size(); ++r) {
    std::string line(static_cast<std::size_t>(columns), '.');
    for (const auto& one : moved[r]) {
      const auto column = [&](double seconds) {
        return std::clamp(static_cast<int>(std::lround(seconds / end * columns)), 0, columns);
      };
      const int last = column(one.end);
      for (int i = column(one.begin + one.waited); i < last; ++i) {
        line[static_cast<std::size_t>(i)] = letter_of(one.operation);
      }
    }
    chart += fmt::format("rank {:<3} {}\n", r, line);
  }
  return chart;
}

WorkDivision division_of(const std::vector<RankTimes>& ranks, Schedule schedule,
                         const Layout& layout) {
  WorkDivision division;
  division.stages.assign(static_cast<std::size_t>(layout.stages()), {0, 0, 0});
  for (const auto& rank : ranks) {
    double busy = 0;
    for (const auto& one : rank) {
      busy += one.computing();
      add_to(division.stages.at(static_cast<std::size_t>(one.operation.stage)), one.operation.kind,
             one.computing() / layout.micro_batches);
    }
    division.busy.push_back(busy);
  }
  const auto heaviest = std::max_element(division.busy.begin(), division.busy.end());
  division.heaviest = static_cast<int>(heaviest - division.busy.begin());
  division.span = simulate(schedule, layout, division.stages).span;
  division.balanced_span = simulate(schedule, layout, mean_of(division.stages)).span;
  return division;
}

std::string describe(const WorkDivision& division, const Layout& layout) {
  const auto rank = static_cast<std::size_t>(division.heaviest);
  const double mean = std::accumulate(division.busy.begin(), division.busy.end(), 0.0) /
                      static_cast<double>(division.busy.size());
  std::string stages = fmt::format("{}", division.heaviest);
  for (int stage = division.heaviest + layout.ranks; stage < layout.stages();
       stage += layout.ranks) {
    stages += fmt::format(" and {}", stage);
  }
  return fmt::format(
      "rank {} (stage{} {}) computes for {:.1f} ms, {:.0f} % more than the mean; with equal "
      "stages, "
      "the step would take {:.1f} ms instead of {:.1f} ms",
      division.heaviest, layout.stages_per_rank > 1 ? "s" : "", stages,
      1e3 * division.busy.at(rank), 100 * (division.busy.at(rank) / mean - 1),
      1e3 * division.balanced_span, 1e3 * division.span);
}

}  // namespace ddp::pipeline
