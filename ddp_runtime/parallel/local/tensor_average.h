// SPDX-License-Identifier: Apache-2.0
// Averages tensors over the ranks of a group, in buckets like those of gradients. The tensors are
// packed into the memory of the buckets, and stay as they are until take().
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/buckets/bucket_store.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

class TensorAverage {
 public:
  // Collective. `tensors` must be floating-point, on one kind of device, and the same on all ranks
  // except for their values. Both must outlive this object.
  TensorAverage(comm::Group& group, std::vector<NamedTensor> tensors, const BucketLimits& limits);

  // Packs the tensors and starts the reduction of each bucket, in the background. Returns whether
  // all values of this rank are finite; waits for a device.
  bool start();
  // Waits for the reduction.
  void wait();
  // The tensors become their means.
  void take();

  // After wait(), until the next start(): the mean of a tensor, in its shape; take() takes what it
  // has then.
  const torch::Tensor& mean(std::size_t tensor) const { return store_.gradient(tensor); }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  comm::Group& group_;
  std::vector<NamedTensor> tensors_;
  BucketPlan plan_;
  BucketStore store_;
  std::vector<comm::Work> works_;
  std::int64_t bytes_ = 0;
};

}  // namespace ddp
