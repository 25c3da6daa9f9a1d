// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/node_address_query.h"

#include <chrono>
#include <cstddef>

#include "base/hostlist.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "spank_plugin/launch/step/node_address.h"

namespace ddp::launch {

std::string query_node_addresses(std::string_view node_list) {
  constexpr std::chrono::seconds kLimit{5};
  constexpr std::size_t kMaxNodes = 1024;
  constexpr std::size_t kMaxOutput = 4U << 20U;
  const auto nodes = expand_hostlist(node_list);
  if (nodes.size() < 2 || !is_host_or_address(nodes.front())) return {};
  const std::string asked = nodes.size() > kMaxNodes ? nodes.front() : std::string(node_list);
  const auto output =
      output_of({"scontrol", "--oneliner", "show", "node", asked}, kLimit, kMaxOutput);
  return output ? make_node_addresses(*output) : "";
}

}  // namespace ddp::launch
