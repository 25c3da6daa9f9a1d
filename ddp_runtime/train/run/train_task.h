// SPDX-License-Identifier: Apache-2.0
// What to train: the model, its data, and what the training calls. How to train it is TrainOptions.
#pragma once

#include <torch/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/train/model/initialize.h"
#include "ddp_runtime/train/model/optimizer.h"
#include "ddp_runtime/train/objective/objective.h"
#include "ddp_runtime/train/options/learning_rate.h"
#include "ddp_runtime/train/run/callbacks.h"
#include "ddp_runtime/train/run/progress.h"
#include "ddp_runtime/train/state/user_state.h"

namespace ddp::train {

class StagedModel;

struct TrainTask {
  std::string program;  // program and command line, for the report
  std::string command;
  std::string model_name;
  torch::nn::Module& module;
  Forward forward = {};
  data::DataPair data = {};
  UserState user_state = {};  // saved in checkpoints beside the model and the optimizer
  // Computes the loss to be minimized from forward's outputs and the targets: one number, the mean
  // over the batch. Default: the mean cross-entropy, for class scores. Runs under autocast, as
  // forward does.
  LossFunction loss = {};
  // Instead of forward and loss, from the whole batch; see objective.h for this and the next two.
  BatchLoss batch_loss = {};
  BatchWeight weight = {};
  std::vector<Metric> metrics = {};
  // Makes the optimizer, instead of options.optimizer. The schedule multiplies the learning rates
  // of its parameter groups, see GroupRates. Checkpoints need SGD, Adam,
  // AdamW, RMSprop or Adagrad.
  OptimizerFactory optimizer = {};
  // The factor of the learning rate in a step, instead of options.schedule and its warm-up. Must be
  // the same on all ranks, so compute it from its argument alone.
  ScheduleFunction schedule = {};
  // Called on all ranks; see callbacks.h.
  Callbacks callbacks = {};
  // Takes the lines of the run, which are then not printed, and no progress line is drawn. Warnings
  // begin with "warning: ". Called on rank 0, and for a warning about another rank alone there.
  LogFunction log = {};
  // Settings of model and data, by name, that the shapes of the arrays do not show: a resumed run
  // reports the settings that differ from those of the run that saved the checkpoint.
  std::map<std::string, std::string> settings = {};
  // Settings that only run.json records, beside those of the options: they change how long a step
  // takes. "comm_hook", the name of options.parallel.hook, and "checkpoint_activations" are
  // compared by ddp-report sweep.
  std::map<std::string, std::string> report_settings = {};
  // Weights to start from, unless the run resumes. Rank 0 reads them and prints what it took.
  std::optional<InitialWeights> initial_weights = std::nullopt;
  // For TrainOptions::stages: `module`, of which each rank has its stages. `forward` is not called.
  std::shared_ptr<StagedModel> staged = nullptr;
};

}  // namespace ddp::train
