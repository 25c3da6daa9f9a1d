// SPDX-License-Identifier: Apache-2.0
// The memory of the buckets: one flat tensor each, with every parameter's gradient as a window on
// it.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"

namespace ddp {

class BucketStore {
 public:
  // Collective: the group allocates the memory, so that ranks of one machine reduce it in place.
  // Gradients have the type of the sum, see parallel/buckets/reduce_type.h.
  BucketStore(comm::Group& group, std::span<const torch::Tensor> parameters, const BucketPlan& plan,
              const ReduceType& reduce_type = {});

  // The window of parameter `index`: a tensor of the parameter's shape that shares the bucket's
  // storage.
  const torch::Tensor& gradient(std::size_t index) const { return gradients_[index]; }
  const torch::Tensor& bucket(std::size_t index) const { return buckets_[index]; }
  // What is reduced: the bucket itself, or memory of a shorter type for its values, into which they
  // are put before the reduction, and from which the sums are taken after it.
  const torch::Tensor& sent(std::size_t index) const { return sent_[index]; }
  void put_into_sent(std::size_t index) const;
  void take_from_sent(std::size_t index) const;
  // Owns the memory of what is sent.
  const std::shared_ptr<std::byte>& memory(std::size_t index) const { return memory_[index]; }
  std::size_t size() const noexcept { return buckets_.size(); }

 private:
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<torch::Tensor> buckets_;
  std::vector<torch::Tensor> sent_;
  std::vector<torch::Tensor> gradients_;
};

}  // namespace ddp
