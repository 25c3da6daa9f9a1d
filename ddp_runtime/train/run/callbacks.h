// SPDX-License-Identifier: Apache-2.0
// Functions of a program that the trainer calls between its steps, for logs, samples and decisions
// of the program's own.
//
// All ranks call them, in the same order, so they may use collectives. Whatever a rank throws stops
// all ranks, with its text. They run outside of the measured phases of a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "ddp_runtime/train/objective/evaluation_result.h"

namespace ddp::train {

// What training does after a callback. If any rank says stop, all ranks stop as after their last
// epoch: with an evaluation, and with a checkpoint.
enum class Next : std::uint8_t { go_on, stop };

struct StepEvent {
  std::int64_t step = 0;  // completed since the beginning of the run
  std::int64_t epoch = 0;
  double learning_rate = 0;
  // The newest loss that is known without waiting: this rank's, or the mean over all ranks. On a
  // device it is that of an earlier step. nullopt before the first.
  std::optional<double> loss;
  double seconds = 0;  // that the step took on this rank
};

struct EpochEvent {
  std::int64_t epoch = 0;  // that has ended, from 0
  std::int64_t step = 0;   // completed since the beginning of the run
  double train_loss = 0;   // mean over the epoch and all ranks
};

struct EvaluationEvent {
  std::int64_t step = 0;
  Evaluation evaluation;
  bool best = false;  // better, by best_metric, than after all earlier epochs
};

// A checkpoint is durable. With saves in the background, this is some steps after its step.
struct SaveEvent {
  std::int64_t step = 0;            // of the checkpoint
  std::filesystem::path directory;  // on rank 0; empty on the others
};

struct Callbacks {
  std::function<void(const StepEvent&)> after_step = {};
  std::function<Next(const EvaluationEvent&)> after_evaluation = {};
  std::function<Next(const EpochEvent&)> after_epoch = {};  // after its evaluation
  std::function<void(const SaveEvent&)> after_save = {};
};

}  // namespace ddp::train
