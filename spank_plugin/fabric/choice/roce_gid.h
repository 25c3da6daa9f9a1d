// SPDX-License-Identifier: Apache-2.0
// Selects the address (GID) of a RoCE port that a library should use. Its index differs between
// nodes and changes with bonds and VLANs, so no constant is right for a whole job.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "spank_plugin/fabric/node/infiniband_port.h"

namespace ddp::fabric {

struct RoceGid {
  int index = 0;
  bool is_v4 = false;
};

// Returns NCCL's choice since 2.21: RoCE v2 only, never link-local; IPv4 before IPv6, then GIDs of
// `interface` (may be empty), then the lowest index. Returns nullopt if the port does not have such
// a GID.
std::optional<RoceGid> choose_roce_gid(const InfinibandPort& port, std::string_view interface);

// True if the entry is used, is RoCE v2 and is not link-local.
bool is_roce_v2_gid(const InfinibandPort& port, std::uint32_t index);

// True if the kernel shows the types of the GIDs; inside containers it may not.
bool shows_gid_types(const InfinibandPort& port) noexcept;

}  // namespace ddp::fabric
