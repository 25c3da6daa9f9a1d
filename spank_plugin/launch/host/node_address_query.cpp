// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/node_address_query.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>

#include "base/hostlist.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "spank_plugin/launch/host/name_lookup.h"
#include "spank_plugin/launch/node_address.h"

namespace ddp::launch {
namespace {

bool is_own_name(const std::string& node) {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return false;
  const std::string_view own = name.data();
  return node == own || node == own.substr(0, own.find('.'));
}

}  // namespace

std::string query_node_addresses(std::string_view node_list) {
  constexpr std::chrono::seconds kLookupLimit{1};
  constexpr std::chrono::seconds kLimit{10};
  constexpr std::size_t kMaxNodes = 1024;
  constexpr std::size_t kMaxOutput = 4U << 20U;
  const auto nodes = expand_hostlist(node_list);
  if (nodes.size() < 2 || !is_host_or_address(nodes.front())) return {};
  const auto& probe = nodes[is_own_name(nodes.front()) ? 1 : 0];
  if (look_up_name(probe, kLookupLimit).lookup == NameLookup::usable) return {};
  const std::string asked = nodes.size() > kMaxNodes ? nodes.front() : std::string(node_list);
  const auto output =
      output_of({"scontrol", "--oneliner", "show", "node", asked}, kLimit, kMaxOutput);
  return output ? make_node_addresses(*output) : "";
}

}  // namespace ddp::launch
