// SPDX-License-Identifier: Apache-2.0
// Whether ports of this host are free, according to the kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "spank_plugin/launch/port_ranges.h"

namespace ddp::launch {

// False only if a socket could not be bound because another one uses the port. A free port may be
// taken a moment later: this check moves most failures to the first second, but cannot exclude
// them.
bool is_port_free(std::uint16_t port) noexcept;

// The first free port; nullopt if none is free.
std::optional<std::uint16_t> first_free_port(std::span<const std::uint16_t> ports) noexcept;

// "port 23001 is taken on this host (user 1000 listens on it)".
std::string describe_taken_port(std::uint16_t port);

// How many ports of the range the kernel may assign to outgoing connections; 0 if unknown.
std::uint32_t count_ephemeral_here(PortRange range);

}  // namespace ddp::launch
