// SPDX-License-Identifier: Apache-2.0
// Options of data parallelism.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/hooks/comm_hook.h"

namespace ddp {

struct DataParallelOptions {
  BucketLimits buckets = {};

  // Allows parameters that are not used in some losses, on some or all ranks: their gradient is the
  // mean over the ranks, with zero for ranks that did not use them, and stays undefined if no rank
  // did. A parameter counts as used if any micro-batch of the step used it. Without this option, a
  // parameter without a gradient is an error that names it. Costs a walk through the graph and one
  // small collective per step.
  bool allow_unused = false;

  // Declares that every step has the same graph: which parameters are used, and how often each gets
  // a gradient in one backward pass, is learned in the first step, which communicates at its end.
  // Allows parameters that get several gradients in one pass (nested backward(), as in
  // hand-written activation checkpointing) and unused ones at no cost per step.
  bool static_graph = false;

  // After the first step, fill the buckets in the order in which gradients actually become ready.
  bool rebuild_buckets = true;

  // Before each step, buffers (such as running means) take rank 0's values.
  bool broadcast_buffers = true;

  // Parameters and buffers that the replica leaves alone, because each rank has its own, or because
  // other code keeps them in step. An entry is a full name, or the beginning of names followed by a
  // '*': "head.bias", "head.*". All ranks must give the same list, and each entry must match on
  // each of them.
  //
  // These parameters are neither broadcast nor compared, and may differ in shape and number between
  // ranks. Their gradients are not averaged: each rank has that of its own share of the mean,
  // so the sum over the ranks would be the average. begin_step() discards them like the others.
  // Clip and unscale gradients without them, or ranks would treat the averaged ones differently.
  //
  // A checkpoint has rank 0's values and optimizer state of ignored tensors, so all ranks must
  // have them in the same shape, and all resume with those. ddp::train::evaluate() takes rank 0's
  // buffers. The trainer accepts no such list.
  std::vector<std::string> ignore = {};

  // If a loss is not finite, the run stops on all ranks with an error that names the rank: before
  // the update on CPUs; on a device in the next step, because reading the loss would wait for it.
  bool check_loss = true;

  // Every check_parameters_every steps and before every checkpoint, the ranks compare a checksum of
  // all parameters; if they differ, the run stops on all ranks with an error that names the ranks.
  // Costs about as much as a plain SGD update. 0 disables the check, for hooks that let ranks
  // differ on purpose.
  std::int64_t check_parameters_every = 100;

  // The type in which gradients are sent and added up, torch::kFloat32 or torch::kBFloat16;
  // nullopt: the type that they have. bfloat16 halves the bytes of float32 gradients, whose sums
  // are float32 again. float32 makes the gradients of bfloat16 parameters float32, micro-batches
  // included, which needs an optimizer with masters (optim::KeepsMasters). Not with a hook, nor
  // with sparse gradients. See Note [Types of gradients] in parallel/buckets/reduce_type.h.
  std::optional<torch::ScalarType> reduce_type = {};

  // Adds up the gradients of a step's micro-batches in an order that depends on their number over
  // all ranks only, so that the same micro-batches on 4, 3 or 2 ranks give the same bits. Rank r
  // of n must have those from r * k on if each rank has k of them. Costs the overlap with backward,
  // and twice the memory of the gradients or more. Not with a hook, a reduce type, sparse gradients
  // or graphs, nor with gradients that are divided among ranks.
  // See Note [Sums of blocks] in parallel/blocks/block_exchange.h.
  bool ordered_blocks = false;

  // Communication hook; by default gradients are summed in full precision. See
  // parallel/hooks/comm_hook.h, and parallel/hooks for the available hooks.
  CommHook hook = {};
};

}  // namespace ddp
