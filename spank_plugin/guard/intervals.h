// SPDX-License-Identifier: Apache-2.0
// How often a guard looks at its rank.
#pragma once

#include <chrono>

namespace ddp::guard {

inline constexpr std::chrono::seconds kInterval{1};
// On a busy node.
inline constexpr std::chrono::seconds kLongestInterval{4};
// In which the guards of a node ask their ranks where they stand, and the answers arrive: two looks
// of each guard, and a moment.
inline constexpr auto kTimeToAnswer = 2 * kLongestInterval + std::chrono::seconds(1);

}  // namespace ddp::guard
