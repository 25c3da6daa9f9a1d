// SPDX-License-Identifier: Apache-2.0
// How often a guard looks at its rank, and speaks with those of other nodes.
#pragma once

#include <chrono>

namespace ddp::guard {

inline constexpr std::chrono::seconds kInterval{1};
// On a busy node.
inline constexpr std::chrono::seconds kLongestInterval{4};
// The hub sends something this often, and the link does not wait longer for events.
inline constexpr std::chrono::milliseconds kLinkTurn{1000};
// In which the guards of a node ask their ranks where they stand, and the answers arrive: two looks
// of each guard, and a moment.
inline constexpr auto kTimeToAnswer = 2 * kLongestInterval + std::chrono::seconds(1);

}  // namespace ddp::guard
