// SPDX-License-Identifier: Apache-2.0
// Finds the socket that uses a port in the text of /proc/net/tcp and /proc/net/tcp6.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp::launch {

struct PortHolder {
  std::uint32_t user = 0;
  bool listens = false;  // otherwise it is a connection
};

// Returns the first socket of the table that is bound to the port; nullopt if there is none, or if
// the text is not a socket table.
std::optional<PortHolder> find_port_holder(std::string_view table, std::uint16_t port);

}  // namespace ddp::launch
