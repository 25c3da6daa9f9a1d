// SPDX-License-Identifier: Apache-2.0
// Text functions of the launch library, in addition to those of base/text.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launch {

// Computes FNV-1a, which is the same on every host, unlike std::hash.
std::uint64_t hash_of(std::string_view text) noexcept;

// Returns "host:port", with brackets around an IPv6 address.
std::string endpoint(std::string_view host, std::string_view port);

// Returns whether `text` is a host name or an address. One colon is "host:port", which is neither:
// an IPv6 address has at least two.
bool is_given_host(std::string_view text) noexcept;

}  // namespace ddp::launch
