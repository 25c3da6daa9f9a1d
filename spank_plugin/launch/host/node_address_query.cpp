// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/node_address_query.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>

#include "base/subprocess.h"
#include "base/text.h"
#include "spank_plugin/launch/host/name_lookup.h"

namespace ddp::launch {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  const std::string full = name.data();
  return full.substr(0, full.find('.'));
}

}  // namespace

std::optional<NodeAddress> query_leader_address(const StepFacts& step, const std::string& leader) {
  constexpr std::chrono::seconds kLookupLimit{1};
  constexpr std::chrono::seconds kLimit{10};
  constexpr std::size_t kMaxOutput = 65'536;
  if (step.nodes.size() < 2 || !is_host_or_address(leader) || leader.starts_with('-')) return {};
  const std::string own = host_name();
  const std::string& probe = leader != own ? leader : step.nodes[step.nodes[0] == own ? 1 : 0];
  if (look_up_name(probe, kLookupLimit).lookup == NameLookup::usable) return {};
  const auto output =
      output_of({"scontrol", "--oneliner", "show", "node", leader}, kLimit, kMaxOutput);
  return output ? node_address_in(*output, leader) : std::nullopt;
}

}  // namespace ddp::launch
