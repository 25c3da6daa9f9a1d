// SPDX-License-Identifier: Apache-2.0
// Data for collectives whose sum is exact in float32 for any order of additions, so that every
// wrong element is detected and rounding cannot cause a false alarm.
//
// The values are integers from -64 to 64: with fewer than 2^18 ranks, every partial sum is below
// 2^24 and therefore exact. Element i of rank r is an entry of one table of random integers, at an
// offset that depends on r. The expected sum is therefore periodic with the table's length and
// cheap to compute at any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp::check {

class ExactSum {
 public:
  ExactSum(std::uint64_t seed, int ranks);

  void fill(int rank, std::span<float> data) const;
  float input(int rank, std::size_t index) const {
    return table_[(shift(rank) + index) % table_.size()];
  }
  float expected(std::size_t index) const { return sums_[index % sums_.size()]; }

 private:
  std::size_t shift(int rank) const;

  std::uint64_t seed_;
  std::vector<float> table_;
  std::vector<float> sums_;
};

struct Mismatch {
  std::int64_t count = 0;  // number of wrong elements
  std::size_t first = 0;   // index of the first wrong element
  float got = 0;           // value of the first wrong element
  float wanted = 0;
};

// Compares `data` with the sum, starting at element `first` of the sum.
Mismatch compare(const ExactSum& sum, std::span<const float> data, std::size_t first = 0);

// Compares `data` with the concatenated contributions of all ranks, each with the same number of
// elements.
Mismatch compare_inputs(const ExactSum& sum, std::span<const float> data, int ranks);

}  // namespace ddp::check
