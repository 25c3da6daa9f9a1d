// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/stages/stage_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/pipeline/simulate.h"

namespace ddp::train {
namespace {

using pipeline::Balance;

// A gain that is smaller may be noise.
constexpr double kLeastGain = 0.02;

std::vector<double> costs_of(const StagePlan& plan) {
  std::vector<double> costs;
  for (const auto& piece : plan.pieces) {
    costs.push_back(piece.seconds > 0 ? piece.seconds : static_cast<double>(piece.parameters));
  }
  return costs;
}

pipeline::Layout layout_of(const StageOptions& options, std::int64_t micro_batches) {
  return {options.ranks, static_cast<int>(micro_batches), options.chunks};
}

// Backward takes twice the time of forward.
double idle_share(const StageOptions& options, std::int64_t micro_batches,
                  const std::vector<double>& seconds) {
  std::vector<pipeline::StageTimes> times;
  for (const double stage : seconds) times.push_back({stage / 3, stage / 3, stage / 3});
  return simulate(options.schedule, layout_of(options, micro_batches), times).bubble;
}

std::vector<double> equal(const StagePlan& plan) {
  return std::vector<double>(static_cast<std::size_t>(plan.options.count()), 1.0);
}

std::string names_of(const StagePlan& plan, int stage) {
  const auto first = plan.first_piece(stage);
  const auto count = static_cast<std::size_t>(plan.balance[static_cast<std::size_t>(stage)]);
  const auto& begin = plan.pieces[first].name;
  if (count == 1) return begin;
  return fmt::format("{} to {}", begin, plan.pieces[first + count - 1].name);
}

// Null unless another balance would shorten the step.
nlohmann::json better_balance(const StagePlan& plan, std::int64_t micro_batches,
                              const StageTimesOfRun& times) {
  const auto& options = plan.options;
  const auto balance = pipeline::balanced(times.pieces, options.count());
  const auto now = pipeline::costs_of_stages(times.pieces, plan.balance);
  const auto then = pipeline::costs_of_stages(times.pieces, balance);
  const double heaviest_now = *std::max_element(now.begin(), now.end());
  const double heaviest_then = *std::max_element(then.begin(), then.end());
  if (balance == plan.balance || heaviest_then >= heaviest_now * (1 - kLeastGain)) return nullptr;
  return {{"balance", balance}, {"idle_share", idle_share(options, micro_batches, then)}};
}

}  // namespace

int StagePlan::stage_of(std::size_t piece) const {
  int stage = 0;
  auto end = static_cast<std::size_t>(balance.front());
  while (piece >= end) end += static_cast<std::size_t>(balance[static_cast<std::size_t>(++stage)]);
  return stage;
}

std::size_t StagePlan::first_piece(int stage) const {
  return static_cast<std::size_t>(
      std::accumulate(balance.begin(), balance.begin() + stage, std::int64_t{0}));
}

std::vector<std::int64_t> StagePlan::parameters_of_stages() const {
  std::vector<std::int64_t> sums(balance.size(), 0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sums[static_cast<std::size_t>(stage_of(i))] += pieces[i].parameters;
  }
  return sums;
}

StagePlan plan_stages(const StageOptions& options, std::vector<PieceCost> pieces) {
  StagePlan plan{options, std::move(pieces), {}};
  const auto count = static_cast<int>(plan.pieces.size());
  if (options.balance == "parameters" || options.balance == "time") {
    plan.balance = pipeline::balanced(costs_of(plan), options.count());
  } else {
    plan.balance = pipeline::parse_balance(options.balance, "--stage-balance");
    pipeline::require_fitting(plan.balance, options.count(), count);
  }
  return plan;
}

std::string stage_table(const StagePlan& plan, const std::vector<std::string>& hosts) {
  const auto& options = plan.options;
  const auto costs = pipeline::costs_of_stages(costs_of(plan), plan.balance);
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  const bool measured = options.balance == "time";
  const auto parameters = plan.parameters_of_stages();
  auto table = fmt::format("  {:<6} {:<12} {:<24} {:<32} {:>12} {:>8}\n", "stage", "ranks", "nodes",
                           "pieces", "parameters", measured ? "time" : "share");
  for (int stage = 0; stage < options.count(); ++stage) {
    std::vector<int> ranks;
    std::vector<std::string> nodes;
    for (int rank = stage % options.ranks; rank < std::ssize(hosts); rank += options.ranks) {
      ranks.push_back(rank);
      const auto& host = hosts[static_cast<std::size_t>(rank)];
      if (nodes.empty() || nodes.back() != host) nodes.push_back(host);
    }
    const auto i = static_cast<std::size_t>(stage);
    table += fmt::format("  {:<6} {:<12} {:<24} {:<32} {:>12} {:>7.1f}%\n", stage,
                         fmt::format("{}", fmt::join(ranks, ",")),
                         fmt::format("{}", fmt::join(nodes, ",")), names_of(plan, stage),
                         parameters[i], all > 0 ? 100 * costs[i] / all : 0.0);
  }
  return table;
}

std::string why_mostly_idle(const StagePlan& plan, std::int64_t micro_batches) {
  const auto& options = plan.options;
  if (micro_batches >= options.count()) return {};
  return fmt::format(
      "{} in {} stages leave{} the ranks idle for {:.0f}% of a step; use "
      "--accumulate "
      "{} or more",
      counted(micro_batches, "micro-batch", "es"), options.count(), micro_batches == 1 ? "s" : "",
      100 * idle_share(options, micro_batches, equal(plan)), 4 * options.ranks);
}

nlohmann::json pipeline_of_report(const StagePlan& plan, std::int64_t micro_batches,
                                  const StageTimesOfRun& times) {
  const auto& options = plan.options;
  const auto stages = pipeline::costs_of_stages(times.pieces, plan.balance);
  auto names = nlohmann::json::array();
  for (const auto& piece : plan.pieces) names.push_back(piece.name);
  auto ranks = nlohmann::json::array();
  for (std::size_t rank = 0; rank < times.computing.size(); ++rank) {
    const double all = times.computing[rank] + times.waiting[rank];
    ranks.push_back({{"rank", rank},
                     {"first_stage", options.place(static_cast<int>(rank))},
                     {"computing_share", all > 0 ? times.computing[rank] / all : 0},
                     {"waiting_share", all > 0 ? times.waiting[rank] / all : 0}});
  }
  return {{"ranks_per_pipeline", options.ranks},
          {"pipelines", options.replicas(static_cast<int>(times.computing.size()))},
          {"stages", options.count()},
          {"schedule", to_string(options.schedule)},
          {"chunks", options.chunks},
          {"micro_batches", micro_batches},
          {"balance", plan.balance},
          {"pieces", std::move(names)},
          {"stage_parameters", plan.parameters_of_stages()},
          {"stage_seconds", stages},
          {"predicted_idle_share", idle_share(options, micro_batches, equal(plan))},
          {"idle_share_of_balance", idle_share(options, micro_batches, stages)},
          {"better", better_balance(plan, micro_batches, times)},
          {"ranks", std::move(ranks)}};
}

}  // namespace ddp::train
