// SPDX-License-Identifier: Apache-2.0
// An optimizer's state in files of the ranks, or on the host of their GPUs.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// Whether the options ask for that.
bool offloads(const TrainOptions& options);

// Throws UsageError, on all ranks, if they ask for a place that parameters on this device cannot
// have.
void require_offloadable(const TrainOptions& options, torch::Device device);

// Collective, if offloads(). From now on, the optimizer of each rank has its state there. Throws
// UsageError, on all ranks, if a rank cannot have such a file.
void offload_state(comm::Group& group, optim::KeepsMasters* keeper, const TrainOptions& options);

}  // namespace ddp::train
