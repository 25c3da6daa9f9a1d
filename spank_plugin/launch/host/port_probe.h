// SPDX-License-Identifier: Apache-2.0
// Checks with the kernel whether ports of this host are free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "spank_plugin/launch/step/port_ranges.h"

namespace ddp::launch {

// Returns false only if a socket could not be bound because another one uses the port. Another
// program may take a free port a moment later: this check moves most failures to the first second,
// but cannot exclude them.
bool is_port_free(std::uint16_t port) noexcept;

// Returns the first free port; nullopt if none is free.
std::optional<std::uint16_t> first_free_port(std::span<const std::uint16_t> ports) noexcept;

// Returns, for example, "port 23001 is taken on this host (user 1000 listens on it)".
std::string describe_taken_port(std::uint16_t port);

// Returns the number of ports of the range that the kernel may assign to outgoing connections; 0 if
// unknown.
std::uint32_t count_ephemeral_here(PortRange range);

}  // namespace ddp::launch
