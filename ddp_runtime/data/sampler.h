// SPDX-License-Identifier: Apache-2.0
// Decides which samples each rank works on. No communication, and no state except a position.
//
// Note [Order of samples]
// An epoch is one permutation of the data, the same on all ranks. A step consumes the next `global
// batch` positions of it, cut into blocks of one micro-batch: block (a, r) = a * ranks + r belongs
// to micro-batch a of rank r. So W ranks see the same samples in every step as one rank with W
// micro-batches. The whole state of the order is the number of samples consumed in the epoch, which
// stays valid when the number of ranks changes. Samples at the end that do not fill a global batch
// are left out; they differ from epoch to epoch.
//
// Note [Blocks]
// If the number of blocks is fixed, a rank has blocks in a row instead: rank r has those from
// r * micro_batches on.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/data/permutation.h"

namespace ddp::data {

struct BatchLayout {
  std::int64_t batch = 1;  // samples of one micro-batch on one rank
  std::int64_t micro_batches = 1;
  int rank = 0;
  int ranks = 1;
  bool in_row = false;  // see Note [Blocks]

  std::int64_t block(std::int64_t micro) const noexcept {
    return in_row ? rank * micro_batches + micro : micro * ranks + rank;
  }
  std::int64_t global_batch() const noexcept { return batch * micro_batches * ranks; }
};

class DistributedSampler {
 public:
  // Throws UsageError if the global batch is larger than the data.
  DistributedSampler(std::int64_t size, std::uint64_t seed, BatchLayout layout);

  // Starts epoch `epoch`, of which `consumed` samples have been used already.
  void set_epoch(std::int64_t epoch, std::int64_t consumed = 0);

  // Number of complete steps left in this epoch.
  std::int64_t steps_left() const noexcept;
  // This rank's samples of micro-batch `micro` in the `step`-th step from the current position.
  std::vector<std::int64_t> indices(std::int64_t step, std::int64_t micro) const;
  // The value that set_epoch() needs to continue after `steps` more steps.
  std::int64_t consumed_after(std::int64_t steps) const noexcept;

  std::int64_t epoch() const noexcept { return epoch_; }
  const BatchLayout& layout() const noexcept { return layout_; }

 private:
  std::uint64_t seed_;
  BatchLayout layout_;
  std::int64_t epoch_ = 0;
  std::int64_t consumed_ = 0;
  Permutation order_;
};

// The samples [first, last) of `size` that rank `rank` evaluates: contiguous, and each sample
// belongs to exactly one rank.
struct Share {
  std::int64_t first;
  std::int64_t last;
};
Share evaluation_share(std::int64_t size, int rank, int ranks);

}  // namespace ddp::data
