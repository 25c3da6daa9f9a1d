// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/exact_sum.h"

#include "ddp_runtime/check/findings/pattern.h"

namespace ddp::check {
namespace {

constexpr std::size_t kPeriod = 4099;  // a prime, so that no segment size divides it

template <class Wanted>
Mismatch compare_each(std::span<const float> data, const Wanted& wanted) {
  Mismatch mismatch;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float right = wanted(i);
    if (data[i] == right) continue;
    if (mismatch.count++ == 0) {
      mismatch.first = i;
      mismatch.got = data[i];
      mismatch.wanted = right;
    }
  }
  return mismatch;
}

}  // namespace

ExactSum::ExactSum(std::uint64_t seed, int ranks)
    : seed_(seed), table_(kPeriod), sums_(kPeriod, 0.0F) {
  for (std::size_t i = 0; i < kPeriod; ++i) {
    table_[i] = static_cast<float>(static_cast<int>(pattern_word(seed, i) % 129) - 64);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t begin = shift(rank);
    for (std::size_t i = 0; i < kPeriod; ++i) sums_[i] += table_[(begin + i) % kPeriod];
  }
}

std::size_t ExactSum::shift(int rank) const {
  return pattern_word(~seed_, static_cast<std::uint64_t>(rank)) % kPeriod;
}

void ExactSum::fill(int rank, std::span<float> data) const {
  std::size_t place = shift(rank);
  for (float& value : data) {
    value = table_[place];
    if (++place == kPeriod) place = 0;
  }
}

Mismatch compare(const ExactSum& sum, std::span<const float> data, std::size_t first) {
  return compare_each(data, [&](std::size_t i) { return sum.expected(first + i); });
}

Mismatch compare_inputs(const ExactSum& sum, std::span<const float> data, int ranks) {
  const std::size_t each = data.size() / static_cast<std::size_t>(ranks);
  return compare_each(
      data, [&](std::size_t i) { return sum.input(static_cast<int>(i / each), i % each); });
}

}  // namespace ddp::check
