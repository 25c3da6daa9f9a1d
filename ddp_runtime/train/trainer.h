// SPDX-License-Identifier: Apache-2.0
// The training loop: epochs of steps over a data set, with checkpoints, evaluation and a report.
#pragma once

#include <memory>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/options/options.h"
#include "ddp_runtime/train/run/run_result.h"
#include "ddp_runtime/train/run/train_task.h"

namespace ddp::train {

class TrainingRun;

class Trainer {
 public:
  // Collective. Throws UsageError or RuntimeError, on all ranks, before training begins.
  Trainer(comm::Group& group, TrainTask task, TrainOptions options);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Collective. Resumes if there is a checkpoint to resume from, trains to the end, and evaluates.
  // If the resumed run had already finished, prints that, evaluates, saves the state if it is from
  // a checkpoint outside of the checkpoint directory, and leaves the report as it is. If only the
  // last evaluation was missing, completes the run and its report.
  RunResult fit();

 private:
  // A pointer, so that programs compile without the definitions of the parts of a run.
  std::unique_ptr<TrainingRun> run_;
};

}  // namespace ddp::train
