// SPDX-License-Identifier: Apache-2.0
// Stateless pseudo-random numbers: a hash of a number.
#pragma once

#include <cstdint>

namespace ddp::data {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014). Never change it: the order of samples
// recorded in existing checkpoints depends on it.
inline std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace ddp::data
