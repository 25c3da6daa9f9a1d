// SPDX-License-Identifier: Apache-2.0
// Units for memory sizes and data rates in the checks.
#pragma once

#include <cstdint>

namespace ddp::check {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;  // memory and storage
constexpr double kGB = 1e9;                             // link speeds, per second

}  // namespace ddp::check
