// SPDX-License-Identifier: Apache-2.0
// Which socket uses a port, from the text of /proc/net/tcp and /proc/net/tcp6.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp::launch {

struct PortHolder {
  std::uint32_t user = 0;
  bool listens = false;  // otherwise it is a connection
};

// The first socket of the table that is bound to the port; nullopt if there is none, or if the text
// is not such a table.
std::optional<PortHolder> find_port_holder(std::string_view table, std::uint16_t port);

}  // namespace ddp::launch
