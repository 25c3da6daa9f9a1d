// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/permutation.h"

#include <algorithm>
#include <bit>

#include "ddp_runtime/data/mix.h"

namespace ddp::data {
namespace {

constexpr std::uint64_t kRounds = 6;

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed)
    : size_(size),
      seed_(seed),
      half_bits_(std::max(1U, (static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(
                                   std::max<std::int64_t>(size, 1) - 1))) +
                               1) /
                                  2)) {}

std::uint64_t Permutation::encipher(std::uint64_t value) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mix(seed_ ^ mix(right * kRounds + round)) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::int64_t Permutation::operator()(std::int64_t position) const noexcept {
  auto value = static_cast<std::uint64_t>(position);
  do {
    value = encipher(value);
  } while (value >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(value);
}

}  // namespace ddp::data
