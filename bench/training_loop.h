// SPDX-License-Identifier: Apache-2.0
// A model, its optimizer and one batch: one training step, with and without communication.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "bench/reducer_peer.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"

namespace ddp::bench {

class TrainingLoop {
 public:
  // SGD with momentum, which keeps one value per parameter, on random samples.
  TrainingLoop(const models::ModelOptions& options, std::int64_t batch);

  models::Model& model() noexcept { return *model_; }
  // One step of a program that does not use this runtime.
  void step();
  // `replica` or `reducer` must belong to model().
  void step(DistributedDataParallel& replica);
  void step(ReducerPeer& reducer);

 private:
  torch::Tensor loss();
  void forget_gradients();

  std::shared_ptr<models::Model> model_;
  torch::optim::SGD optimizer_;
  torch::Tensor inputs_;
  torch::Tensor targets_;
};

}  // namespace ddp::bench
