// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/roce_gid.h"

#include <algorithm>
#include <tuple>

#include "spank_plugin/fabric/files/ip_address.h"

namespace ddp::fabric {
namespace {

// Returns the address of an entry if other nodes can reach it.
std::optional<IpAddress> usable_address(const Gid& gid) {
  const auto address = parse_ip_address(gid.address);
  const bool usable = gid.type == "RoCE v2" && address && !address->is_link_local();
  return usable ? address : std::nullopt;
}

}  // namespace

std::optional<RoceGid> choose_roce_gid(const InfinibandPort& port, std::string_view interface) {
  std::optional<RoceGid> best;
  auto best_rank = std::make_tuple(false, false);
  for (const Gid& gid : port.gids) {  // in index order
    const auto address = usable_address(gid);
    if (!address) continue;
    const auto rank =
        std::make_tuple(!address->is_v6, !interface.empty() && gid.net_device == interface);
    if (best && rank <= best_rank) continue;
    best = RoceGid{gid.index, !address->is_v6};
    best_rank = rank;
  }
  return best;
}

bool is_roce_v2_gid(const InfinibandPort& port, std::uint32_t index) {
  return std::any_of(port.gids.begin(), port.gids.end(), [index](const Gid& gid) {
    return static_cast<std::uint32_t>(gid.index) == index && usable_address(gid);
  });
}

bool shows_gid_types(const InfinibandPort& port) noexcept {
  return std::any_of(port.gids.begin(), port.gids.end(),
                     [](const Gid& gid) { return !gid.type.empty(); });
}

}  // namespace ddp::fabric
