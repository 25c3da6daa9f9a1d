// SPDX-License-Identifier: Apache-2.0
// Training of a model in stages, as a pipeline or on each rank alone.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/pipeline/pipeline.h"
#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::bench {

struct StagedStep {
  models::ModelOptions model;
  std::string optimizer = "sgd";
  std::int64_t samples = 0;  // of a micro-batch
  int micro_batches = 1;
  int stages_per_rank = 1;
};

// Of one step on one rank.
struct PassTimes {
  double seconds = 0;
  double computing = 0;
  std::vector<double> operations;  // seconds, at place_in_pass(); 0 for those of other ranks
};

std::size_t place_in_pass(const pipeline::Operation& operation, const pipeline::Layout& layout);

class PipelineTraining {
 public:
  // Collective.
  PipelineTraining(comm::Group& group, const StagedStep& step, pipeline::Schedule schedule);

  void step();
  // Of all steps so far.
  const std::vector<PassTimes>& passes() const noexcept { return passes_; }

 private:
  pipeline::Layout layout_;
  pipeline::Pipeline pipe_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<pipeline::MicroBatch> data_;
  std::vector<PassTimes> passes_;
};

// Runs the stages of a rank on as many micro-batches, without messages.
class LoneStages {
 public:
  LoneStages(const comm::Group& group, const StagedStep& step);

  void step();
  const std::vector<PassTimes>& passes() const noexcept { return passes_; }

 private:
  void run(int number, const pipeline::Stage& stage, PassTimes& pass);

  StagedStep step_;
  pipeline::Layout layout_;
  std::vector<int> own_;
  std::vector<pipeline::Stage> modules_;  // of own_
  torch::Tensor input_;
  torch::Tensor activation_;
  torch::Tensor target_;
  std::vector<PassTimes> passes_;
};

// A pipeline whose stages do next to nothing, on one micro-batch: a step has one message after
// another, there and back.
class EmptyStages {
 public:
  EmptyStages(comm::Group& group, const StagedStep& step);

  // Returns the seconds of one message.
  double step();

 private:
  int messages_;
  pipeline::Pipeline pipe_;
  std::vector<pipeline::MicroBatch> data_;
};

}  // namespace ddp::bench
