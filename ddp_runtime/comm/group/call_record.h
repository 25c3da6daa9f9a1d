// SPDX-License-Identifier: Apache-2.0
// How a call of a collective is described to other ranks, and the hash of a sequence of calls.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/group/buffer.h"

namespace ddp::comm {

// "1024 float32".
inline std::string describe(const Buffer& data) {
  return fmt::format("{} {}", data.count, to_string(data.type));
}

// Continues an FNV-1a hash.
inline std::uint64_t hash_on(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return (hash ^ 0xffU) * 0x100000001b3U;  // end marker
}

}  // namespace ddp::comm
