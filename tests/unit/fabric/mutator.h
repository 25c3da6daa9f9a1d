// SPDX-License-Identifier: Apache-2.0
// Damages text at random, reproducibly for a given seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace ddp::test {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // Returns a number from 0 to `end` - 1; `end` must not be 0.
  std::size_t below(std::size_t end) { return random_() % end; }

  // Returns the text, at most 16 KiB, after a few flips, cuts, repetitions and insertions of
  // troublesome characters.
  std::string damaged(std::string text);

 private:
  void damage_once(std::string& text);

  std::mt19937_64 random_;
};

}  // namespace ddp::test
