// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/node/route.h"

#include <bit>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "spank_plugin/fabric/files/text.h"

namespace ddp::fabric {
namespace {

constexpr std::size_t kMaxRoutes = 4096;

// Flags from linux/route.h, which cannot be included because it conflicts with the C library.
constexpr std::uint32_t kUp = 0x0001;
constexpr std::uint32_t kReject = 0x0200;
constexpr std::uint32_t kLocal = 0x80000000;  // IPv6: the node's own addresses

bool is_in_use(std::uint32_t flags) {
  return (flags & kUp) != 0 && (flags & (kReject | kLocal)) == 0;
}

// The fields are: Iface Destination Gateway Flags RefCnt Use Metric Mask .. Addresses are 32-bit
// words whose bytes in memory are in network order.
std::optional<Route> parse_ipv4_line(std::string_view line) {
  const auto words = words_of(line, 8);
  if (words.size() < 8) return std::nullopt;
  const auto destination = parse_hexadecimal(words[1]);
  const auto flags = parse_hexadecimal(words[3]);
  const auto metric = parse_decimal(words[6]);
  const auto mask = parse_hexadecimal(words[7]);
  if (!destination || !flags || !metric || !mask || !is_in_use(*flags)) return std::nullopt;
  if (!is_interface_name(words[0])) return std::nullopt;
  Route route{{}, std::popcount(*mask), *metric, std::string(words[0])};
  std::memcpy(route.network.bytes.data(), &*destination, sizeof *destination);
  return route;
}

std::optional<IpAddress> parse_ipv6_digits(std::string_view digits) {
  if (digits.size() != 32) return std::nullopt;
  IpAddress address{true, {}};
  for (std::size_t i = 0; i < address.bytes.size(); ++i) {
    const auto byte = parse_hexadecimal(digits.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    address.bytes[i] = static_cast<std::uint8_t>(*byte);
  }
  return address;
}

// The fields are: destination length source length next-hop metric refcount use flags interface.
// All numbers are hexadecimal.
std::optional<Route> parse_ipv6_line(std::string_view line) {
  const auto words = words_of(line, 10);
  if (words.size() < 10) return std::nullopt;
  const auto network = parse_ipv6_digits(words[0]);
  const auto bits = parse_hexadecimal(words[1]);
  const auto metric = parse_hexadecimal(words[5]);
  const auto flags = parse_hexadecimal(words[8]);
  if (!network || !bits || *bits > 128 || !metric || !flags || !is_in_use(*flags)) {
    return std::nullopt;
  }
  if (!is_interface_name(words[9])) return std::nullopt;
  return Route{*network, static_cast<int>(*bits), *metric, std::string(words[9])};
}

template <typename ParseLine>
std::vector<Route> parse_lines(std::string_view text, ParseLine parse_line) {
  std::vector<Route> routes;
  for (const auto line : split(text, '\n', kMaxRoutes)) {
    if (auto route = parse_line(line)) routes.push_back(std::move(*route));
  }
  return routes;
}

}  // namespace

std::vector<Route> parse_ipv4_routes(std::string_view text) {
  return parse_lines(text, parse_ipv4_line);
}

std::vector<Route> parse_ipv6_routes(std::string_view text) {
  return parse_lines(text, parse_ipv6_line);
}

const Route* find_route(std::span<const Route> routes, const IpAddress& address) noexcept {
  const Route* best = nullptr;
  for (const Route& route : routes) {
    if (!is_in(address, route.network, route.prefix_bits)) continue;
    const bool better = best == nullptr || route.prefix_bits > best->prefix_bits ||
                        (route.prefix_bits == best->prefix_bits && route.metric < best->metric);
    if (better) best = &route;
  }
  return best;
}

}  // namespace ddp::fabric
