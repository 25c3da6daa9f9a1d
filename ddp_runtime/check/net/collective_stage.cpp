// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/collective_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/net/join_tasks.h"
#include "ddp_runtime/check/net/measurements.h"

namespace ddp::check {
namespace {

// Number of float32 elements.
constexpr std::size_t kLargeElements = std::size_t{4} << 20;  // 16 MiB
constexpr int kLargeIterations = 5;
constexpr std::size_t kSmallElements = 2;
constexpr int kSmallIterations = 20;

class CollectiveStage {
 public:
  using Progress = std::function<void(const std::string& line)>;
  CollectiveStage(Leader& leader, const CollectiveStageOptions& options, const Progress& progress)
      : leader_(leader), options_(options), progress_(progress) {}

  CollectivesMeasured run() {
    if (measure_speeds()) measure_latency();
    return std::move(account_);
  }

 private:
  bool measure_speeds();
  void measure_latency();
  CollectiveMeasured measure(Collective collective, std::size_t elements, int iterations);
  void tell(const CollectiveMeasured& measured, const BusBandwidth& bandwidth);
  void add(std::vector<Finding> findings);

  Leader& leader_;
  const CollectiveStageOptions& options_;
  const Progress& progress_;
  bool sums_right_ = true;
  CollectivesMeasured account_;
};

void CollectiveStage::add(std::vector<Finding> findings) {
  std::move(findings.begin(), findings.end(), std::back_inserter(account_.findings));
}

// Returns whether all collectives completed.
bool CollectiveStage::measure_speeds() {
  for (const Collective collective : kCollectives) {
    const bool first = collective == Collective::all_reduce;
    const auto measured = measure(collective, kLargeElements, kLargeIterations);
    auto wrong = evaluate_collective_data(measured);
    if (first) sums_right_ = wrong.empty();
    add(std::move(wrong));
    account_.findings.push_back(evaluate_collective_speed(
        measured, first ? options_.fewest_per_second : std::nullopt, options_.pairs));
    const auto bandwidth = bus_bandwidth(measured);
    if (!bandwidth || !leader_.all_reachable()) return false;
    tell(measured, *bandwidth);
    account_.words +=
        first ? fmt::format("; all-reduce over {} {:.3g} GB/s busbw", title_of(options_.over),
                            bandwidth->bus_per_second / kGB)
              : fmt::format(", {} {:.3g}", title_of(collective), bandwidth->bus_per_second / kGB);
  }
  return true;
}

void CollectiveStage::measure_latency() {
  const auto little = measure(Collective::all_reduce, kSmallElements, kSmallIterations);
  if (sums_right_) add(evaluate_collective_data(little));  // otherwise already reported
  const auto latency = bus_bandwidth(little);
  if (!latency) return;
  add(evaluate_collective_latency(little, options_.pairs));
  account_.figures.emplace_back("allreduce_latency_us", latency->seconds / kMicrosecond);
  account_.words += fmt::format(", all-reduce of {} bytes {:.3g} us",
                                little.elements * sizeof(float), latency->seconds / kMicrosecond);
}

CollectiveMeasured CollectiveStage::measure(Collective collective, std::size_t elements,
                                            int iterations) {
  CollectiveMeasured measured;
  measured.collective = collective;
  measured.over = options_.over;
  measured.ranks = options_.ranks;
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  const bool shared = collective != Collective::all_reduce;  // ranks contribute equal shares
  measured.elements = shared ? (elements + ranks - 1) / ranks * ranks : elements;
  const CollectiveCommand command{collective, options_.seed, measured.elements, iterations};
  const std::string title = title_of(collective);
  progress_(title + " over all tasks");
  std::string error;
  for (const auto& [rank, answer] :
       leader_.ask_all(to_message(command), "the " + title, options_.limit * (iterations + 1))) {
    if (answer.contains("error")) {
      if (!answer.contains("of_peer") || error.empty()) error = answer.at("error");
      continue;
    }
    measured.results[rank] = collective_result_from(answer);
    measured.nodes[rank] = leader_.present().at(rank).node;
  }
  if (!error.empty()) {
    account_.findings.push_back(
        not_run(options_.over, fmt::format("the {} failed: {}", title, error)));
  }
  return measured;
}

void CollectiveStage::tell(const CollectiveMeasured& measured, const BusBandwidth& bandwidth) {
  const std::string name = name_of(measured.collective);
  std::string figure = name;
  std::erase(figure, '_');
  account_.figures.emplace_back(figure + "_busbw_GBps", bandwidth.bus_per_second / kGB);
  account_.measurements[name] = {{"bytes", measured.elements * sizeof(float)},
                                 {"ranks", measured.ranks},
                                 {"seconds_p50", bandwidth.seconds},
                                 {"algbw_GBps", bandwidth.algorithm_per_second / kGB},
                                 {"busbw_GBps", bandwidth.bus_per_second / kGB},
                                 {"factor", bandwidth.factor},
                                 {"definition", fmt::format("busbw = bytes / seconds * {}",
                                                            bus_factor_text(measured.collective))}};
}

}  // namespace

CollectivesMeasured measure_collectives(
    Leader& leader, const CollectiveStageOptions& options,
    const std::function<void(const std::string& line)>& progress) {
  return CollectiveStage(leader, options, progress).run();
}

}  // namespace ddp::check
