// SPDX-License-Identifier: Apache-2.0
// The steps of one rank's trainer, without a run around them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/train/step/training_step.h"

namespace ddp::train {

class RankSteps {
 public:
  // `objective` must outlive the steps. Batches are numbered from 0.
  RankSteps(comm::Group& group, torch::nn::Module& module, const Objective& objective,
            const TrainOptions& options, std::function<data::Batch(std::int64_t number)> batch_of)
      : batches_(1000, std::move(batch_of), 1, 1),
        step(make_training_step({group, module, objective, recorder_}, options)) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step->run(batches_, 0.1, ++made);
      note();
    }
  }
  void settle() {
    step->settle();
    note();
  }

  std::vector<std::string> skipped;  // "step 2: the reason"
  std::int64_t made = 0;

 private:
  void note() {
    for (const auto& update : step->take_skipped()) {
      skipped.push_back("step " + std::to_string(update.step) + ": " + update.why);
    }
  }

  profile::StepRecorder recorder_;
  data::Prefetcher batches_;

 public:
  std::unique_ptr<TrainingStep> step;  // ends before what it uses
};

}  // namespace ddp::train
