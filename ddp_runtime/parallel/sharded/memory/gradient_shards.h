// SPDX-License-Identifier: Apache-2.0
// This rank's part of the averaged gradients: stage 2 of ZeRO (Rajbhandari et al., 2020).
//
// Note [Gradients on their way]
// The gradients of a flat memory are copied into one of two buffers, reduced there, and only this
// rank's part is kept. Several micro-batches add up in that part. The buffers are memory of the
// group, so ranks of one machine add up their parts straight from each other's buffers. All ranks
// use them in turn, in the order of the reductions. On GPUs, where parts are equal, NCCL scatters
// into memory of its own size, because in place a part would be at another offset on each rank,
// which memory in a window of NCCL must not be (see Arena).
//
// They are sent in the reduce type, and what is kept has the type of the sum, see
// parallel/buckets/reduce_type.h.
//
// If several ranks have the same part, they add up their parts of all micro-batches once per step
// (hybrid sharding; HYBRID_SHARD of Zhao et al., 2023). On CPUs, they do so during backward; on
// GPUs, after it, because collectives of two groups at the same time, each of which needs the whole
// GPU, could wait for each other: see Note [One order per device].
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

class StepMarks;

class GradientShards {
 public:
  // Collective. The flats have parameters that require gradients, are divided by `groups.sharing`,
  // and must outlive this object.
  GradientShards(const ShardGroups& groups, std::vector<const FlatShard*> flats,
                 const ReduceType& reduce_type = {});

  // Forgets the gradients of the previous step, and those that an error has left on their way.
  void begin_step();
  // Collective, in the same order on all ranks. `gradients` are those of the flat's arrays;
  // undefined ones count as zeros. `last` is the step's last micro-batch.
  void reduce(std::size_t flat, const std::vector<torch::Tensor>& gradients,
              const std::string& label, bool last);
  // Waits for all reductions. Then every flat that was reduced has its sum.
  void finish();
  // This rank's part, a vector; undefined if nothing was reduced in this step.
  torch::Tensor sum_of(std::size_t flat) const;

  void mark_on(StepMarks* marks) noexcept { marks_ = marks; }
  // The reductions of this step that have been waited for.
  std::vector<profile::CommunicationSpan> take_spans();

 private:
  struct Buffer {
    std::shared_ptr<std::byte> memory;
    std::shared_ptr<std::byte> part;  // for a part of equal ones; null if no flat has them
    std::optional<std::size_t> flat;  // whose gradients are being reduced
    std::string label;
    bool last = false;
    comm::Work work;
  };
  struct Across {  // a reduction of parts
    std::size_t flat = 0;
    std::string label;
    torch::Tensor sum;  // the part, or its copy in the reduce type
    comm::Work work;
  };
  torch::TensorOptions sent_as(std::size_t flat) const;
  torch::TensorOptions kept_as(std::size_t flat) const;
  torch::Tensor tensor_in(const Buffer& buffer, std::size_t flat) const;
  // This rank's part, once it is reduced.
  torch::Tensor mine_in(const Buffer& buffer, std::size_t flat) const;
  comm::Work start_reduction(const Buffer& buffer, std::size_t flat);
  void collect(Buffer& buffer);
  void start(Across& reduction);
  void end(const Across& reduction);
  void record(const std::string& label, std::size_t bytes, const comm::Work& work);

  ShardGroups groups_;
  std::vector<const FlatShard*> flats_;
  ReduceType reduce_type_;
  std::array<Buffer, 2> buffers_;
  std::size_t next_ = 0;  // buffer
  std::vector<Across> across_;
  std::vector<torch::Tensor> sums_;
  std::vector<bool> has_sum_;
  StepMarks* marks_ = nullptr;
  std::vector<profile::CommunicationSpan> spans_;
};

}  // namespace ddp
