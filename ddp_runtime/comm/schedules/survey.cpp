// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/survey.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp_runtime/comm/group/host_reduce.h"
#include "ddp_runtime/comm/schedules/rounds.h"

namespace ddp::comm::schedules {
namespace {

constexpr int kPings = 8;
constexpr int kBursts = 3;
constexpr std::size_t kBurstBytes = std::size_t{256} << 10;

template <class T>
std::vector<T> gather_values(Link& link, const Subgroup& group, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  all[static_cast<std::size_t>(group.me)] = mine;
  const Buffer bytes{reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(T),
                     ElementType::u8};
  gather_rounds(link, group, bytes, even_starts(bytes.count, group.size()),
                halving_rounds(group.size()));
  return all;
}

NodeMap find_nodes(Link& link, const Subgroup& all_ranks, std::string_view node_key) {
  const std::uint64_t mine = std::hash<std::string_view>{}(node_key);
  std::vector<std::string> keys;
  for (const std::uint64_t key : gather_values(link, all_ranks, mine)) {
    keys.push_back(std::to_string(key));
  }
  return map_nodes(keys, all_ranks.me);
}

template <class Body>
double fastest_of(int tries, const Body& body) {
  auto best = std::chrono::duration<double>::max();
  for (int i = 0; i < tries; ++i) {
    const auto begin = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin));
  }
  return best.count();
}

// The peers of this rank while all ranks send at once: the ranks at the same place on the nodes
// that are half of all nodes ahead and behind. If a node has more ranks than another, some of its
// ranks only wait.
struct Partners {
  int to = -1;
  int from = -1;
};

Partners partners_of(const Subgroup& all_ranks, const NodeMap& nodes) {
  const auto around = [](const Subgroup& group) {
    const int half = std::max(group.size() / 2, 1);
    return Partners{group.at(group.me + half), group.at(group.me - half)};
  };
  if (nodes.nodes.size() == 1) return around(all_ranks);
  return nodes.place < nodes.lanes ? around(nodes.lane_subgroup()) : Partners{};
}

// Returns zeros on a rank that only waits.
NetworkModel measure(Link& link, const Partners& partners, Scratch& scratch) {
  NetworkModel seen{0, 0, 0};
  if (partners.to < 0) return seen;
  scratch.resize(std::max(scratch.size(), 2 * kBurstBytes));
  const std::span<std::byte> out(scratch.data(), kBurstBytes);
  const std::span<std::byte> in(scratch.data() + kBurstBytes, kBurstBytes);
  seen.gamma = fastest_of(kBursts,
                          [&] {
                            reduce_into({in.data(), kBurstBytes / sizeof(float), ElementType::f32},
                                        out, ReduceOp::sum);
                          }) /
               kBurstBytes;
  const auto exchange = [&](std::size_t bytes) {
    link.exchange(partners.to, out.first(bytes), partners.from, in.first(bytes));
  };
  seen.alpha = fastest_of(kPings, [&] { exchange(sizeof(double)); });
  const double burst = fastest_of(kBursts, [&] { exchange(kBurstBytes); });
  seen.beta = std::max(burst - seen.alpha, 0.0) / kBurstBytes;
  return seen;
}

double median(const std::vector<NetworkModel>& all, double NetworkModel::*value) {
  std::vector<double> values;
  values.reserve(all.size());
  for (const NetworkModel& model : all) values.push_back(model.*value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Surroundings survey(Link& link, const Subgroup& all_ranks, std::string_view node_key,
                    const NetworkSource& source, Scratch& scratch) {
  Surroundings found{source.model, find_nodes(link, all_ranks, node_key)};
  if (source.kind != NetworkSource::Kind::measured) return found;
  const Partners partners = partners_of(all_ranks, found.nodes);
  const NetworkModel mine = measure(link, partners, scratch);
  std::vector<NetworkModel> seen;
  for (const NetworkModel& model : gather_values(link, all_ranks, mine)) {
    if (model.alpha > 0) seen.push_back(model);
  }
  // Smaller values are below the precision of clocks and networks.
  found.network.alpha = std::max(median(seen, &NetworkModel::alpha), 1e-7);
  found.network.beta = std::max(median(seen, &NetworkModel::beta), 1e-12);
  found.network.gamma = std::max(median(seen, &NetworkModel::gamma), 1e-12);
  return found;
}

}  // namespace ddp::comm::schedules
