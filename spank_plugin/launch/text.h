// SPDX-License-Identifier: Apache-2.0
// The small text work of this room beside that of base/text.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launch {

// FNV-1a: the same on every host, unlike std::hash.
std::uint64_t hash_of(std::string_view text) noexcept;

// "host:port", with brackets around an IPv6 address.
std::string endpoint(std::string_view host, std::string_view port);

}  // namespace ddp::launch
