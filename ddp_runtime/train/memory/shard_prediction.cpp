// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/shard_prediction.h"

#include <fmt/format.h>

namespace ddp::train {
namespace {

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1048576);
}

std::string strategy_row(const ShardPrediction& prediction, ShardStrategy strategy,
                         const std::string& measured) {
  const auto costs = predict_costs(strategy, prediction.sizes, prediction.layout);
  auto row = fmt::format("{} {:<32}{:>14}{:>12}{:>15}", strategy == prediction.chosen ? '*' : ' ',
                         strategy_name(strategy), mebibytes(costs.bytes_between_steps),
                         mebibytes(costs.bytes_in_step), mebibytes(costs.bytes_sent));
  if (!measured.empty()) row += fmt::format("{:>15}", measured);
  return row + "\n";
}

constexpr const char* kMeaning =
    "  predicted: weights, gradients, optimizer state and the buffers of their exchange; without "
    "activations,\n"
    "             batches and libraries. Sent: what leaves a machine, divided by its ranks\n";
// The optimizer makes its state when it first updates.
constexpr const char* kMeasured =
    "  measured:  the rank with the most, beyond what it had without the model; with activations, "
    "on CPUs with\n"
    "             what the heap keeps of freed memory. Later steps have the optimizer's state in "
    "backward, too\n";

}  // namespace

nlohmann::json sharding_of_report(const ShardPrediction& prediction,
                                  std::optional<std::int64_t> measured_peak) {
  const auto costs = predict_costs(prediction.chosen, prediction.sizes, prediction.layout);
  return {{"strategy", strategy_name(prediction.chosen)},
          {"divided_by", costs.divided_by},
          {"reduce_type", prediction.reduce_type},
          {"reduce_once", prediction.layout.reduces_once},
          {"predicted_bytes_between_steps", costs.bytes_between_steps},
          {"predicted_bytes_in_step", costs.bytes_in_step},
          {"predicted_bytes_offloaded", costs.bytes_offloaded},
          {"predicted_bytes_sent_per_step", costs.bytes_sent},
          {"measured_peak_bytes", measured_peak ? nlohmann::json(*measured_peak) : nullptr}};
}

std::string strategy_table(const ShardPrediction& prediction,
                           std::optional<std::int64_t> measured_peak) {
  auto table = fmt::format("  {:<32}{:>14}{:>12}{:>15}{:>15}\n", "MiB per rank, --shard",
                           "between steps", "in a step", "sent per step", "measured peak");
  for (const auto strategy : prediction.possible) {
    std::string measured;
    if (strategy == prediction.chosen) measured = measured_peak ? mebibytes(*measured_peak) : "?";
    table += strategy_row(prediction, strategy, measured);
  }
  table += kMeaning;
  if (measured_peak) table += kMeasured;
  const auto chosen = predict_costs(prediction.chosen, prediction.sizes, prediction.layout);
  if (chosen.bytes_offloaded > 0) {
    table += fmt::format("  offloaded: {} MiB per rank of the optimizer's state are {}\n",
                         mebibytes(chosen.bytes_offloaded),
                         prediction.layout.on_gpus ? "on the host" : "in a file");
  }
  return table;
}

}  // namespace ddp::train
