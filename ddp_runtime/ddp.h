// SPDX-License-Identifier: Apache-2.0
// Everything your own program needs to train with slurm-ddp. See docs/your_model.md.
#pragma once

#include "base/errors.h"
#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/data/readers.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/data/torch_dataset.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/asynchronous/stale_synchronous.h"
#include "ddp_runtime/parallel/buckets/split_backward.h"
#include "ddp_runtime/parallel/device/cuda.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "ddp_runtime/parallel/hooks/power_sgd.h"
#include "ddp_runtime/parallel/layers/activation_checkpoint.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "ddp_runtime/parallel/local/local_steps.h"
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"
#include "ddp_runtime/parallel/tensors/tensor_collectives.h"
#include "ddp_runtime/pipeline/cut.h"
#include "ddp_runtime/pipeline/pipeline.h"
#include "ddp_runtime/pipeline/simulate.h"
#include "ddp_runtime/pipeline/timeline.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/model/bf16_weights.h"
#include "ddp_runtime/train/model/freeze.h"
#include "ddp_runtime/train/model/initialize.h"
#include "ddp_runtime/train/model/optimizer.h"
#include "ddp_runtime/train/objective/evaluation.h"
#include "ddp_runtime/train/options/checkpoint_interval.h"
#include "ddp_runtime/train/options/run_table.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "ddp_runtime/train/run/run_report.h"
#include "ddp_runtime/train/stages/staged_model.h"
#include "ddp_runtime/train/state/training_state.h"
#include "ddp_runtime/train/state/user_state.h"
#include "ddp_runtime/train/trainer.h"

namespace ddp {

using comm::run;
using comm::World;
using comm::WorldOptions;
using train::Trainer;
using train::TrainOptions;
using train::UserState;

}  // namespace ddp
