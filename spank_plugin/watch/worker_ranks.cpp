// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/worker_ranks.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::watch {
namespace {

constexpr std::size_t kMaxWorkers = 64;

std::optional<std::uint32_t> read_rank(const std::string& process) {
  constexpr std::string_view kName = "RANK=";
  const std::string variables = read_kernel_file(process + "/environ");
  for (const auto variable : split(variables, '\0')) {
    if (variable.starts_with(kName)) return parse_decimal(variable.substr(kName.size()));
  }
  return std::nullopt;
}

}  // namespace

void WorkerRanks::update(const std::string& proc, std::span<const Process> processes) {
  std::map<Identity, std::uint32_t> ranks;
  for (const auto& process : processes) {
    const Identity identity{process.pid, process.start};
    const auto known = ranks_.find(identity);
    // One without a rank may get it by execve(2).
    const auto rank = known != ranks_.end() ? std::optional(known->second)
                                            : read_rank(proc + "/" + std::to_string(process.pid));
    if (rank) ranks[identity] = *rank;
  }
  ranks_ = std::move(ranks);
}

std::vector<RankProcesses> WorkerRanks::workers_in(std::span<const Process> processes) const {
  std::vector<RankProcesses> workers;
  for (const auto& process : processes) {
    const auto known = ranks_.find({process.pid, process.start});
    if (known == ranks_.end() || workers.size() >= kMaxWorkers) continue;
    const auto rank = known->second;
    if (std::ranges::find(workers, rank, &RankProcesses::rank) != workers.end()) continue;
    workers.push_back({rank, tree_of(processes, process.pid)});
  }
  return workers;
}

}  // namespace ddp::watch
