// SPDX-License-Identifier: Apache-2.0
// The sizes of a training from which the costs of shards are predicted.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"
#include "ddp_runtime/train/memory/shard_prediction.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// Also of an optimizer without state, and of a ShardedOptimizer: the state that all ranks together
// will have. Nullopt for kinds whose state is not known.
std::optional<std::int64_t> bytes_of_state(const torch::optim::Optimizer& optimizer);

// Collective. Machines whose ranks can share memory, as those of one host need not in containers.
int count_machines(comm::Group& group);

// The chosen strategy, and what else the module can do with options.units. `nodes`: on which the
// ranks are, see count_machines(). Nullopt if bytes_of_state() is, for asynchronous
// training, and for local steps.
std::optional<ShardPrediction> predict_shards(const torch::nn::Module& module,
                                              const torch::optim::Optimizer& optimizer,
                                              const TrainOptions& options, int ranks, int nodes);

}  // namespace ddp::train
