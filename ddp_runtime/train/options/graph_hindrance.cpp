// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/graph_hindrance.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {

std::string graph_hindrance(const GraphFacts& facts) {
  if (facts.on_cpu) return "the model is on the CPU, which has no graphs";
  if (facts.asynchronous) return "the ranks train asynchronously";
  if (facts.local_steps) return "parameters are averaged between steps (--local-steps)";
  if (facts.task.communicates_in_forward) {
    return "SyncBatchNorm layers communicate in the middle of forward and backward";
  }
  // Its groups may have learning rates of their own, and a replay has one.
  if (facts.task.own_optimizer) return "the optimizer is the task's own";
  if (facts.task.weighs_batches) return "the weights of the batches are numbers of the host";
  if (facts.comm_hook) return "a communication hook runs on the host in each step";
  if (facts.shortens_gradients) {
    return "gradients are rounded before they are sent (--reduce-type bf16)";
  }
  if (facts.allow_unused) return "unused parameters are allowed, so steps may differ";
  if (facts.shards) return "the optimizer is divided among the ranks (--shard)";
  if (facts.offloads) return "the optimizer's state is on the host (--offload-optimizer)";
  if (facts.micro_batches > 1) {
    return fmt::format("a step has {} micro-batches, and only steps of one are captured",
                       facts.micro_batches);
  }
  if (facts.fixed_blocks) {
    return "each block draws random numbers from a seed of its own (--blocks)";
  }
  return facts.no_graphs;
}

GraphMode parse_graph_mode(const std::string& name) {
  if (name == "off") return GraphMode::off;
  if (name == "auto") return GraphMode::automatic;
  if (name == "on") return GraphMode::on;
  throw UsageError(fmt::format("--graph must be auto, on or off, not '{}'", name));
}

std::string graph_mode_name(GraphMode mode) {
  switch (mode) {
    case GraphMode::off:
      return "off";
    case GraphMode::automatic:
      return "auto";
    case GraphMode::on:
      return "on";
  }
  return "";
}

GraphPlan plan_graph(torch::Device device, const GraphTask& task, const TrainOptions& options) {
  if (options.graph.mode == GraphMode::off) return {};
  GraphFacts facts{.on_cpu = device.is_cpu(),
                   .asynchronous = options.staleness.has_value(),
                   .local_steps = options.local.has_value(),
                   .task = task,
                   .micro_batches = options.micro_batches,
                   .fixed_blocks = options.blocks > 0,
                   .comm_hook = static_cast<bool>(options.parallel.hook),
                   .shortens_gradients = options.parallel.reduce_type == torch::kBFloat16,
                   .allow_unused = options.parallel.allow_unused,
                   .shards = options.shard != Shard::none,
                   .offloads = options.offload_to_host,
                   .no_graphs = {}};
  GraphPlan plan;
  plan.hindrance = graph_hindrance(facts);
  if (plan.hindrance.empty()) {
    try {
      plan.graph = options.graph.make(device);
    } catch (const UsageError& error) {
      facts.no_graphs = error.what();
      plan.hindrance = graph_hindrance(facts);
    }
  }
  if (!plan.hindrance.empty() && options.graph.mode == GraphMode::on) {
    throw UsageError(fmt::format(
        "--graph on: steps cannot be captured as a graph, because {}; use --graph auto or off",
        plan.hindrance));
  }
  return plan;
}

}  // namespace ddp::train
