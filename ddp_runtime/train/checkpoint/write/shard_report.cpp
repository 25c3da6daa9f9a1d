// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/shard_report.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

namespace ddp::train {

std::string to_text(const ShardReport& report) {
  nlohmann::json json = {{"problem", report.problem}, {"read_back", report.read_back}};
  if (report.record) json["record"] = ckpt::record_to_json(*report.record);
  return json.dump();
}

nlohmann::json shard_attributes(const ckpt::CheckpointInfo& info) {
  return {{"epoch", info.epoch}, {"world_size", info.world_size}};
}

Shards collect_shards(const std::vector<std::string>& reports) {
  Shards shards;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto report = nlohmann::json::parse(reports[rank]);
    if (report.contains("record")) {
      if (!report.at("read_back").get<bool>()) shards.verified = false;
      shards.records.push_back(ckpt::record_from_json(report.at("record")));
    }
    const auto problem = report.at("problem").get<std::string>();
    if (problem.empty() || !shards.problem.empty()) continue;
    shards.problem = reports.size() > 1 ? fmt::format("rank {}: {}", rank, problem) : problem;
  }
  return shards;
}

}  // namespace ddp::train
