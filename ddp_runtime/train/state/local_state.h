// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of a run with local steps has besides the state of all runs, whose model is the
// mean of the ranks and whose optimizer is rank 0's:
//
//   local/rank/model/<name>               each rank's parameters and buffers; absent at an average
//   local/rank/optim/<parameter>/<field>  each rank's state of the optimizer
//   local/rank/loss_scale                 each rank's loss scale, and its updates since a change
//   local/start/<parameter>               with an outer optimizer, the parameters after the last
//                                         average; absent at an average
//   local/velocity/<parameter>            its momentum
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/local/local_steps.h"
#include "ddp_runtime/train/state/optimizer_state.h"
#include "ddp_runtime/train/state/rank_state.h"

namespace ddp::train {

class LocalState final : public RankState {
 public:
  // `scaler` is null if the run has none. All arguments must outlive this object.
  LocalState(LocalSteps& local, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
             amp::GradScaler* scaler);

  std::vector<StateArray> arrays() override;
  std::vector<StateArray> places_for(const std::vector<SavedArray>& saved) override;

  // Collective, before the first step, after `step` steps: takes over what places_for() has read,
  // as far as this run can continue with it. Returns a line for the user if that is not all.
  std::string restore(std::int64_t step);

 private:
  std::vector<std::string> all_fields(const std::vector<StateArray>& mine);
  void complete_fields();
  std::vector<NamedTensor> loaded(std::string_view prefix) const;
  bool same_within_node(const std::vector<NamedTensor>& own);
  void restore_optimizer();
  void restore_scaler();

  LocalSteps& local_;
  comm::Group& group_;
  OptimizerState optimizer_state_;
  amp::GradScaler* scaler_;
  std::vector<StateArray> loaded_;  // by places_for()
  std::int64_t saved_ranks_ = 0;    // of the checkpoint, if it has rows of ranks
  bool saved_apart_ = false;        // whether these had different parameters
};

}  // namespace ddp::train
