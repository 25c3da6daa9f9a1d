// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/errors.h"

namespace ddp {
namespace {

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> in_rows(int ranks, int per_row) {
  if (per_row < 1 || ranks % per_row != 0) {
    throw UsageError(fmt::format(
        "ShardOptions::hybrid_ranks is {}, which does not divide the number of ranks, {}", per_row,
        ranks));
  }
  auto rows = all_ranks(ranks);
  for (int& rank : rows) rank /= per_row;
  return rows;
}

}  // namespace

ShardGroups ShardGroups::of_all(comm::Group& group) {
  return {group, group, nullptr, {all_ranks(group.size())}};
}

// Ranks that cannot share memory are each on a machine of their own.
void require_several_ranks(std::span<const int> ranks_of_machine) {
  if (ranks_of_machine.size() > 1) return;
  throw UsageError(
      "Shard::hybrid divides the model among the ranks of a node, but each node has one rank, or "
      "its ranks do not share a /dev/shm, as in containers of their own; use Shard::parameters, "
      "which divides it among all ranks");
}

std::vector<int> machines_of(std::span<const std::string> keys) {
  std::map<std::string, int> numbers;
  std::vector<int> machines;
  std::vector<int> first;   // rank of each machine
  std::vector<int> counts;  // of its ranks
  for (const auto& key : keys) {
    const auto [machine, is_new] = numbers.emplace(key, static_cast<int>(numbers.size()));
    if (is_new) {
      first.push_back(static_cast<int>(machines.size()));
      counts.push_back(0);
    }
    machines.push_back(machine->second);
    ++counts[static_cast<std::size_t>(machine->second)];
  }
  const auto other =
      std::ranges::find_if(counts, [&](int count) { return count != counts.front(); });
  if (other == counts.end()) return machines;
  throw UsageError(fmt::format(
      "Shard::hybrid divides the model among the ranks of a node, but the node of rank 0 has {} "
      "ranks and that of rank {} has {}; start the same number of ranks on each node (srun "
      "--ntasks-per-node), or use "
      "Shard::parameters",
      counts.front(), first[static_cast<std::size_t>(other - counts.begin())], *other));
}

ShardGroups groups_by_machine(comm::Group& group, int ranks) {
  const auto machines = ranks != 0 ? in_rows(group.size(), ranks)
                                   : machines_of(group.all_gather_text(group.machine_key()));
  const int mine = machines[static_cast<std::size_t>(group.rank())];
  std::vector<std::vector<int>> nodes(
      static_cast<std::size_t>(*std::ranges::max_element(machines)) + 1);
  for (int rank = 0; rank < group.size(); ++rank) {
    nodes[static_cast<std::size_t>(machines[static_cast<std::size_t>(rank)])].push_back(rank);
  }
  if (nodes.size() == 1) return ShardGroups::of_all(group);
  if (ranks == 0) require_several_ranks(nodes.front());
  const auto& mates = nodes[static_cast<std::size_t>(mine)];
  const auto place = static_cast<int>(std::ranges::find(mates, group.rank()) - mates.begin());
  auto* const sharing = group.split(mine, 0, fmt::format("node {}", mine));
  auto* const across = group.split(place, 0, fmt::format("part {} of each node", place));
  return {group, *sharing, across, std::move(nodes)};
}

}  // namespace ddp
