// SPDX-License-Identifier: Apache-2.0
// A pseudo-random order of n elements that needs no memory and can start at any position.
#pragma once

#include <cstdint>

namespace ddp::data {

// A balanced Feistel network on the smallest even number of bits that holds n, iterated until the
// value falls below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002: cycle
// walking). The same size and seed must give the same order on every machine and in every version,
// because checkpoints rely on it.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed);

  // The element at `position`, both in [0, size).
  std::int64_t operator()(std::int64_t position) const noexcept;
  std::int64_t size() const noexcept { return size_; }

 private:
  std::uint64_t encipher(std::uint64_t value) const noexcept;

  std::int64_t size_;
  std::uint64_t seed_;
  unsigned half_bits_;
};

}  // namespace ddp::data
