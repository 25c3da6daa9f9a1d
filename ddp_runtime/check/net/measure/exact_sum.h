// Data for collectives whose sum is exact in float32 whatever the order of the additions, so that
// every wrong element is seen and none is a matter of rounding.
//
// The values are integers from -64 to 64: with fewer than 2^18 ranks every partial sum is below
// 2^24 and therefore exact. Element i of rank r is an entry of one table of random integers, at a
// place that r shifts; the expected sum then has the table's length as its period and costs nothing
// to know at any size.
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
  std::int64_t count = 0;  // of wrong elements
  std::size_t first = 0;   // the first of them
  float got = 0;           // its value
  float wanted = 0;
};

// Data that should be the sum's elements from number `first` on.
Mismatch compare(const ExactSum& sum, std::span<const float> data, std::size_t first = 0);

// Data that should be what each of the ranks contributes, one after the other, as many elements of
// each.
Mismatch compare_inputs(const ExactSum& sum, std::span<const float> data, int ranks);

}  // namespace ddp::check
