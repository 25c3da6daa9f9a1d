// SPDX-License-Identifier: Apache-2.0
// Whether the steps of a run can be captured as a graph: see Note [Graphs] in
// parallel/device/device_graph.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp_runtime/parallel/device/device_graph.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// What the task of a run has that its options do not show.
struct GraphTask {
  bool communicates_in_forward = false;  // and in the middle of backward: SyncBatchNorm
  bool own_optimizer = false;
  bool weighs_batches = false;
};

// What is known about a run before its first step.
struct GraphFacts {
  bool on_cpu = false;
  bool asynchronous = false;
  bool local_steps = false;
  GraphTask task = {};
  std::int64_t micro_batches = 1;
  bool fixed_blocks = false;
  bool comm_hook = false;
  bool shortens_gradients = false;
  bool allow_unused = false;
  bool shards = false;
  bool offloads = false;
  std::string no_graphs = {};  // why the device has no graphs; empty if it has
};

// Why the steps of such a run cannot be captured, as the end of a sentence; empty if they can. The
// model itself may hinder it, too, which is found when a step is captured.
std::string graph_hindrance(const GraphFacts& facts);

// Throws UsageError listing the valid values.
GraphMode parse_graph_mode(const std::string& name);
std::string graph_mode_name(GraphMode mode);

struct GraphPlan {
  std::unique_ptr<DeviceGraph> graph;  // null: all steps run eagerly
  std::string hindrance;               // why, if a graph is wanted
};

// Throws UsageError with the hindrance if the options insist on a graph.
GraphPlan plan_graph(torch::Device device, const GraphTask& task, const TrainOptions& options);

}  // namespace ddp::train
