// SPDX-License-Identifier: Apache-2.0
// The number of steps that each rank has completed. No side effects.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::parameter_server {

class Clocks {
 public:
  explicit Clocks(int ranks) : done_(static_cast<std::size_t>(ranks)) {}

  void advance(int rank) { ++done_[static_cast<std::size_t>(rank)]; }
  std::int64_t done_by(int rank) const { return done_[static_cast<std::size_t>(rank)]; }
  // Number of steps that every rank has completed.
  std::int64_t slowest() const { return *std::min_element(done_.begin(), done_.end()); }
  std::int64_t fastest() const { return *std::max_element(done_.begin(), done_.end()); }
  // The lowest rank that has completed no more steps than slowest().
  int slowest_rank() const {
    return static_cast<int>(std::min_element(done_.begin(), done_.end()) - done_.begin());
  }

 private:
  std::vector<std::int64_t> done_;
};

}  // namespace ddp::parameter_server
