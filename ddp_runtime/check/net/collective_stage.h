// SPDX-License-Identifier: Apache-2.0
// Runs collectives over all tasks of the step and verifies every result.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/evaluate/evaluate_collective.h"
#include "ddp_runtime/check/net/step/leader.h"

namespace ddp::check {

struct CollectiveStageOptions {
  int ranks = 0;
  std::uint64_t seed = 1;             // seed of the test data
  std::chrono::milliseconds limit{};  // time limit for one collective
  std::optional<double>
      fewest_per_second;  // bus bandwidth, in bytes per second, that all-reduce must reach
  TransportKind over = TransportKind::mpi;  // which connects the tasks, or tcp
  PairBasis pairs;                          // results of the pairs over it
};

// The results of the stage, as the verdict reports them.
struct CollectivesMeasured {
  std::vector<Finding> findings;
  std::vector<std::pair<std::string, double>> figures;
  nlohmann::json measurements = nlohmann::json::object();
  std::string words;  // "; all-reduce 1.2 GB/s busbw, ..."
};

// Measures the speed of each collective with a large amount of data, then the latency of an
// all-reduce with a small amount. Stops early if a task does not answer. All tasks must be
// connected (join_tasks.h).
CollectivesMeasured measure_collectives(
    Leader& leader, const CollectiveStageOptions& options,
    const std::function<void(const std::string& line)>& progress);

}  // namespace ddp::check
