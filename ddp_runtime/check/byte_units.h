#pragma once
// Units in which the checks speak of memory and of rates.

#include <cstdint>

namespace ddp::check {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;  // of memory and storage
constexpr double kGB = 1e9;                             // of what a link carries in a second

}  // namespace ddp::check
