// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/trainer.h"

#include "ddp_runtime/train/run/training_run.h"

namespace ddp::train {

Trainer::Trainer(comm::Group& group, TrainTask task, TrainOptions options)
    : run_(std::make_unique<TrainingRun>(group, std::move(task), std::move(options))) {}

Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

RunResult Trainer::fit() {
  return run_->fit();
}

}  // namespace ddp::train
