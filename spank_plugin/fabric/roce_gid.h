// Which of a RoCE port's addresses (GIDs) a library should use. It differs between nodes and after
// changes of bonds and VLANs, so that no constant is right for a whole job.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "spank_plugin/fabric/infiniband_port.h"

namespace ddp::fabric {

struct RoceGid {
  int index = 0;
  bool is_v4 = false;
};

// As NCCL chooses since 2.21: RoCE v2 only, never link-local; IPv4 before IPv6, then those of
// `interface` (may be empty), then the lowest index. Nothing if the port has no such GID.
std::optional<RoceGid> choose_roce_gid(const InfinibandPort& port, std::string_view interface);

// Whether the entry is in use, RoCE v2 and not link-local.
bool is_roce_v2_gid(const InfinibandPort& port, std::uint32_t index);

// Whether the kernel says of what type the GIDs are; inside containers it may not.
bool shows_gid_types(const InfinibandPort& port) noexcept;

}  // namespace ddp::fabric
