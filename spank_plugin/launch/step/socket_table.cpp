// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/socket_table.h"

#include "base/text.h"

namespace ddp::launch {
// The fields of a line "  0: 0100007F:59D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000
// 1000 0 12345 ..." are: number, local address:port, remote address:port, state, queues, timer,
// retransmits, user.
std::optional<PortHolder> find_port_holder(std::string_view table, std::uint16_t port) {
  constexpr std::size_t kLocal = 1;
  constexpr std::size_t kState = 3;
  constexpr std::size_t kUser = 7;
  constexpr std::uint32_t kListen = 0x0A;
  for (const auto line : split(table, '\n')) {
    const auto words = words_of(line);
    if (words.size() <= kUser) continue;
    const auto colon = words[kLocal].rfind(':');
    if (colon == std::string_view::npos) continue;
    const auto local_port = parse_hexadecimal(words[kLocal].substr(colon + 1));
    const auto state = parse_hexadecimal(words[kState]);
    const auto user = parse_decimal(words[kUser], 0xffff'ffff);
    if (!local_port || *local_port != port || !state || !user) continue;
    return PortHolder{static_cast<std::uint32_t>(*user), *state == kListen};
  }
  return std::nullopt;
}

}  // namespace ddp::launch
