// SPDX-License-Identifier: Apache-2.0
// Counts with their nouns.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::check {

// "1 node", "2 nodes"
inline std::string counted(std::size_t number, std::string_view thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

}  // namespace ddp::check
