// SPDX-License-Identifier: Apache-2.0
// Which pairs of GPUs lack what comparable pairs have. Pairs are comparable if they are equally far
// apart: two GPUs below different CPUs often cannot access each other, although neither is faulty.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

namespace ddp::check {
namespace {

// With fewer, one pair that happens to be connected by a bridge could accuse the others.
constexpr std::size_t kMinGoodPairs = 3;

using Capability = GpuReading GpuPair::*;

bool has(const GpuPair& pair, Capability capability) {
  return (pair.*capability).value == kPeerOk;
}

bool comparable(const GpuPair& pair, Capability capability) {
  return pair.distance.has_value() && (pair.*capability).value.has_value();
}

std::string words_for(std::uint64_t status) {
  switch (status) {
    case 1:
      return "the chipset does not support it";
    case 2:
      return "the GPU does not support it";
    case 3:
      return "the topology does not support it";
    case 4:
      return "a setting of the driver disables it";
    default:
      return "the driver does not support it";
  }
}

// The GPUs all of whose pairs lack the capability, if most GPUs are not among them.
std::set<std::size_t> isolated_gpus(const std::vector<GpuPair>& pairs, Capability capability) {
  std::set<std::size_t> all;
  std::set<std::size_t> connected;
  for (const auto& pair : pairs) {
    if (!comparable(pair, capability)) continue;
    all.insert({pair.first, pair.second});
    if (has(pair, capability)) connected.insert({pair.first, pair.second});
  }
  std::set<std::size_t> isolated;
  if (2 * connected.size() <= all.size()) return isolated;
  std::set_difference(all.begin(), all.end(), connected.begin(), connected.end(),
                      std::inserter(isolated, isolated.end()));
  return isolated;
}

// The distances at which most pairs of GPUs that are not isolated have the capability.
std::set<std::uint64_t> usual_distances(const std::vector<GpuPair>& pairs, Capability capability,
                                        const std::set<std::size_t>& isolated) {
  struct Count {
    std::size_t with = 0;
    std::size_t without = 0;
  };
  std::map<std::uint64_t, Count> counts;
  for (const auto& pair : pairs) {
    if (!comparable(pair, capability)) continue;
    if (isolated.contains(pair.first) || isolated.contains(pair.second)) continue;
    ++(has(pair, capability) ? counts[*pair.distance].with : counts[*pair.distance].without);
  }
  std::set<std::uint64_t> usual;
  for (const auto& [distance, count] : counts) {
    if (count.with >= kMinGoodPairs && count.with > count.without) usual.insert(distance);
  }
  return usual;
}

Finding about_pair(const std::string& device, const char* what) {
  return {.check = "gpu.peers",
          .severity = Severity::warning,
          .device = device,
          .value = fmt::format("no {}", what),
          .expected = fmt::format("{}, which comparable pairs have", what),
          .rule = "equally distant pairs of GPUs have the same access to each other",
          .action =
              "check nvidia-smi topo -p2p r and nvidia-smi topo -m, and the IOMMU and ACS "
              "settings"};
}

// A GPU that is divided by MIG never has access to others.
std::vector<GpuPair> undivided_pairs(const NvmlFacts& facts) {
  std::vector<GpuPair> pairs;
  for (const auto& pair : facts.pairs) {
    if (is_divided(facts.gpus.at(pair.first)) || is_divided(facts.gpus.at(pair.second))) continue;
    pairs.push_back(pair);
  }
  return pairs;
}

void compare(const NvmlFacts& facts, Capability capability, const char* what,
             std::vector<Finding>& findings) {
  const auto pairs = undivided_pairs(facts);
  const auto isolated = isolated_gpus(pairs, capability);
  const auto usual = usual_distances(pairs, capability, isolated);
  std::set<std::size_t> named;
  for (const auto& pair : pairs) {
    if (!comparable(pair, capability) || has(pair, capability)) continue;
    if (!usual.contains(*pair.distance)) continue;
    const std::string reason = words_for(*(pair.*capability).value);
    bool of_isolated = false;
    for (const std::size_t gpu : {pair.first, pair.second}) {
      if (!isolated.contains(gpu)) continue;
      of_isolated = true;
      if (!named.insert(gpu).second) continue;
      findings.push_back(about_pair(facts.gpus.at(gpu).bus_address, what));
      findings.back().evidence = "with any other GPU: " + reason;
    }
    if (of_isolated) continue;
    findings.push_back(
        about_pair(name_of_pair(facts.gpus.at(pair.first), facts.gpus.at(pair.second)), what));
    findings.back().evidence = reason;
  }
}

}  // namespace

std::string name_of_pair(const GpuFacts& first, const GpuFacts& second) {
  return first.bus_address + "-" + second.bus_address;
}

std::vector<Finding> evaluate_peers(const NvmlFacts& facts) {
  std::size_t known = 0;
  std::size_t with_access = 0;
  for (const auto& pair : facts.pairs) {
    known += pair.access.value ? 1 : 0;
    with_access += has(pair, &GpuPair::access) ? 1 : 0;
  }
  if (known == 0) return {};
  std::vector<Finding> findings{
      {.check = "gpu.peers",
       .severity = Severity::ok,
       .value = static_cast<double>(with_access),
       .unit = "pairs with access to each other's memory",
       .rule = "equally distant pairs of GPUs have the same access to each other"}};
  compare(facts, &GpuPair::access, "access to each other's memory", findings);
  compare(facts, &GpuPair::nvlink, "NVLink", findings);
  return findings;
}

}  // namespace ddp::check
