// SPDX-License-Identifier: Apache-2.0
// Decides when a bucket may be sent. Bookkeeping of one backward pass, without side effects.
//
// Note [Launch order]
// All ranks must call the same collectives in the same order, but gradients become ready in an
// order that may differ between ranks. So a bucket that is complete waits until all buckets before
// it have been launched: buckets always go out as 0, 1, 2, ... on every rank.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp {

class LaunchOrder {
 public:
  explicit LaunchOrder(const BucketPlan& plan);

  // Clears the ready marks. Call before each backward that reduces.
  void reset();
  // Buckets [first, last) may be launched now; usually none.
  struct Launch {
    std::size_t first;
    std::size_t last;
  };
  // Marks that parameter `index` has its gradient, at most once between resets: see is_ready().
  Launch mark_ready(std::size_t index);

  bool is_ready(std::size_t index) const { return ready_[index]; }
  bool all_launched() const noexcept { return next_ == pending_.size(); }
  // The parameters that have no gradient yet, ascending.
  std::vector<std::size_t> missing() const;

 private:
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> bucket_sizes_;
  std::vector<std::size_t> pending_;  // per bucket: number of missing gradients
  std::vector<bool> ready_;
  std::size_t next_ = 0;  // the next bucket to launch
};

}  // namespace ddp
