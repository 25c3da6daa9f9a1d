// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/files/ip_address.h"

#include <arpa/inet.h>

#include <algorithm>

namespace ddp::fabric {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

IpAddress unmapped(const IpAddress& address) {
  if (!std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), address.bytes.begin())) {
    return address;
  }
  IpAddress v4;
  std::copy_n(address.bytes.begin() + kMappedPrefix.size(), 4, v4.bytes.begin());
  return v4;
}

}  // namespace

bool IpAddress::is_loopback() const noexcept {
  if (!is_v6) return bytes[0] == 127;
  return bytes[15] == 1 &&
         std::all_of(bytes.begin(), bytes.end() - 1, [](auto b) { return b == 0; });
}

bool IpAddress::is_link_local() const noexcept {
  if (!is_v6) return bytes[0] == 169 && bytes[1] == 254;
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::optional<IpAddress> parse_ip_address(std::string_view text) {
  const std::string number(text.substr(0, text.find('%')));
  IpAddress address;
  if (inet_pton(AF_INET, number.c_str(), address.bytes.data()) == 1) return address;
  if (inet_pton(AF_INET6, number.c_str(), address.bytes.data()) != 1) return std::nullopt;
  address.is_v6 = true;
  return unmapped(address);
}

std::string to_string(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.is_v6 ? AF_INET6 : AF_INET, address.bytes.data(), text.data(), text.size());
  return text.data();
}

bool is_in(const IpAddress& address, const IpAddress& network, int prefix_bits) noexcept {
  if (address.is_v6 != network.is_v6 || prefix_bits < 0 ||
      prefix_bits > (address.is_v6 ? 128 : 32)) {
    return false;
  }
  const auto whole = static_cast<std::size_t>(prefix_bits / 8);
  if (!std::equal(address.bytes.begin(), address.bytes.begin() + prefix_bits / 8,
                  network.bytes.begin())) {
    return false;
  }
  const int rest = prefix_bits % 8;
  return rest == 0 || (address.bytes[whole] >> (8 - rest)) == (network.bytes[whole] >> (8 - rest));
}

std::string interface_with(std::span<const InterfaceAddress> addresses, const IpAddress& address) {
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const auto& entry) { return entry.address == address; });
  return found == addresses.end() ? std::string() : found->interface;
}

std::optional<IpAddress> address_of(std::span<const InterfaceAddress> addresses,
                                    std::string_view interface) {
  std::optional<IpAddress> v6;
  for (const auto& entry : addresses) {
    if (entry.interface != interface || entry.address.is_local()) continue;
    if (!entry.address.is_v6) return entry.address;
    if (!v6) v6 = entry.address;
  }
  return v6;
}

bool has_address(std::span<const InterfaceAddress> addresses, std::string_view interface,
                 bool is_v6) {
  return std::any_of(addresses.begin(), addresses.end(), [&](const auto& entry) {
    return entry.interface == interface && entry.address.is_v6 == is_v6 &&
           !entry.address.is_local();
  });
}

}  // namespace ddp::fabric
