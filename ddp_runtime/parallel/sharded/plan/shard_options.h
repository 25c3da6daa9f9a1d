// SPDX-License-Identifier: Apache-2.0
// What the ranks of a data-parallel training divide among themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/buckets/options.h"

namespace ddp {

class ShardedBuild;

// The stages of ZeRO (Rajbhandari et al., 2020); each includes those before it.
enum class Shard : std::uint8_t {
  none,
  optimizer,   // stage 1: the optimizer's state
  gradients,   // stage 2
  parameters,  // stage 3: a unit's parameters are whole only while it computes
  // All of it among the ranks of each node, so that nodes exchange gradients only. On CPUs, the
  // ranks of a node have the parameters in common, in shared memory, and always whole.
  hybrid,
};

struct ShardOptions {
  Shard shard = Shard::parameters;  // or gradients, hybrid

  // Which modules are units, for Shard::parameters, and on GPUs for Shard::hybrid: names in which
  // '*' stands for any characters but a dot, such as "blocks.*". The model calls them through
  // ddp::unit(). The parameters that are in no unit are whole during the entire step, so units
  // should have most of the parameters.
  std::vector<std::string> units = {};

  // Gives a unit's memory back between its forward and its backward. Without it, each unit is
  // gathered once per step instead of twice, and all of them are whole when forward ends.
  bool reshard_after_forward = true;

  // Keeps this rank's whole gradients until the last micro-batch of a step, and reduces their sum,
  // once, as DistributedDataParallel does. With k micro-batches, that sends 1/k of the bytes of
  // gradients, and takes memory for the gradients of the whole model. Without it, each micro-batch
  // is reduced by itself, and of its gradients a rank keeps its part.
  bool reduce_once = false;

  // With Shard::hybrid, how many ranks in a row divide the model; 0: those of each node.
  int hybrid_ranks = 0;

  // What has divided units of the module already, when they were built. It may be destroyed after
  // the ShardedDataParallel was constructed.
  ShardedBuild* build = nullptr;

  // Without communication hooks and static_graph. Checks of parameters compare what several ranks
  // have: with Shard::hybrid, the parts of nodes.
  DataParallelOptions data_parallel = {};
};

}  // namespace ddp
