// SPDX-License-Identifier: Apache-2.0
// Averages gradients so that the bits of the result do not depend on the number of ranks, see
// DataParallelOptions::ordered_blocks.
//
// Note [Sums of blocks]
// Each micro-batch of a step is a block with a number: rank r of n has the blocks from r * k on, if
// each rank has k of them. Autograd adds up micro-batches from left to right, which depends on k,
// so the gradients of a block are moved to memory of their own when its backward is over, where
// they join the partial sums of summation_tree.h.
//
// After the last block, a rank has one or more nodes of the tree, whose number depends on its
// blocks (one if k is a power of two). Rank r adds up part r of each bucket: an all_to_all brings
// it that part of all nodes, and an all_gather distributes the result. So k' nodes per rank send k'
// times the bytes of a reduce_scatter, and nothing overlaps with backward: that is the price.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/blocks/summation_tree.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/buckets/gradient_exchange.h"
#include "ddp_runtime/parallel/buckets/options.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

class BlockExchange final : public GradientExchange {
 public:
  // Parameters that require no gradients are left out. Throws UsageError for options that do not go
  // together with blocks. `sparse`: see Reducer; there must be none.
  BlockExchange(comm::Group& group, const std::vector<NamedTensor>& parameters,
                const std::vector<NamedTensor>& sparse, const DataParallelOptions& options);

  void begin_step(int micro_batches) override;
  void require_optimizer(torch::optim::Optimizer& /*optimizer*/) const override {}
  void begin_backward(const torch::Tensor& /*loss*/, bool /*last*/) override {}
  void end_backward(bool /*last*/) override { take_block(); }
  void pass_without_data(bool last) override;
  void finish() override;
  CapturableExchange& capturable() override;
  void mark_on(StepMarks* marks) noexcept override { marks_ = marks; }
  const std::vector<profile::CommunicationSpan>& communication() const noexcept override {
    return spans_;
  }
  std::size_t bucket_count() const noexcept override { return plan_.buckets.size(); }

 private:
  // Gradients of all parameters, or sums of them: a flat tensor for each bucket.
  using Gradients = std::vector<torch::Tensor>;
  // A bucket on its way: `sent` has part r of all nodes of this rank for each rank r, `received`
  // this rank's part of all nodes of all ranks.
  struct Exchange {
    torch::Tensor sent;
    torch::Tensor received;
    comm::Work work;
  };

  Gradients unused_memory();
  void take_block();
  void require_all_used() const;
  void find_used();
  void add_up();
  Exchange begin_exchange(std::size_t bucket);
  void add_received(std::size_t bucket, const Exchange& exchange, const torch::Tensor& result);
  void note(std::size_t bucket, const char* what, std::size_t bytes, const comm::Work& work);
  void publish(const Gradients& sums);
  std::string label(std::size_t bucket) const;

  comm::Group& group_;
  bool allow_unused_;
  std::vector<NamedTensor> parameters_;
  BucketPlan plan_;
  std::vector<std::int64_t> elements_;  // of each bucket

  std::int64_t blocks_here_ = 0;                // of a step, on each rank
  std::int64_t next_ = 0;                       // block of this rank, from 0
  std::vector<std::vector<TreeNode>> nodes_;    // of each rank, after its last block
  std::optional<PartialSums<Gradients>> sums_;  // of this step
  std::vector<Gradients> unused_;               // memory of former sums
  std::vector<std::uint8_t> used_;              // in this step; after finish(), by any rank
  StepMarks* marks_ = nullptr;
  std::vector<profile::CommunicationSpan> spans_;
};

}  // namespace ddp
