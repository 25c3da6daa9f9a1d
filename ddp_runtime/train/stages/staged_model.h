// SPDX-License-Identifier: Apache-2.0
// A model of which each rank has the pieces of its own stages only.
//
// Note [Models in stages]
// The model is the same object on all ranks, with the names and shapes of one that is built whole.
// The parameters and buffers of other ranks' pieces have no memory. It is built twice: first
// without memory, to learn the sizes of its pieces, which decide who gets which; then with the same
// random numbers, each block keeping its values only where it belongs. So the initial values are
// those of a model that is built whole, and no rank has more than its pieces, one block, and what
// is outside of the blocks.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/pipeline/tied_weights.h"
#include "ddp_runtime/train/stages/stage_plan.h"
#include "ddp_runtime/train/state/stage_residence.h"

namespace ddp::train {

// Builds the model with the same random numbers in each call, and calls `built` as
// models::ModelOptions::built.
using BuildModel = std::function<std::shared_ptr<models::Model>(
    const std::function<void(torch::nn::Module& unit)>& built)>;

class StagedModel {
 public:
  // Collective, with the same options on all ranks. `sample`: a micro-batch for measuring the
  // pieces, if the balance is `time`; rank 0 then builds the whole model for a moment. The model
  // moves to `device` if it is given. Throws UsageError if the model or the ranks do not fit.
  StagedModel(comm::Group& group, const StageOptions& options, const BuildModel& build,
              const std::function<data::Batch()>& sample, std::optional<torch::Device> device = {});
  StagedModel(const StagedModel&) = delete;
  StagedModel& operator=(const StagedModel&) = delete;

  const std::shared_ptr<models::Model>& model() const noexcept { return model_; }
  const StagePlan& plan() const noexcept { return plan_; }
  const StageResidence& residence() const noexcept { return residence_; }

  // The pieces of a stage, in their order, and their numbers in the plan.
  const std::vector<models::Piece>& pieces() const noexcept { return pieces_; }
  // A module of the stage's parameters, which are those of the model.
  std::shared_ptr<torch::nn::Module> module_of(int stage) const;
  // Weights that several stages have in common.
  std::vector<pipeline::TiedWeight> tied() const;

 private:
  std::vector<PieceCost> costs_of_pieces(comm::Group& group, const BuildModel& build,
                                         const std::function<data::Batch()>& sample);
  void build_own(const BuildModel& build, std::optional<torch::Device> device);
  void find_pieces();
  bool is_own(const torch::nn::Module& module) const;
  void place_tensors();
  void keep_own(std::optional<torch::Device> device) const;

  StageOptions options_;
  int rank_;
  int ranks_;
  StagePlan plan_;
  std::shared_ptr<models::Model> model_;
  std::vector<models::Piece> pieces_;
  std::vector<const torch::nn::Module*> units_;  // of the first build, in their order
  StageResidence residence_;
};

}  // namespace ddp::train
