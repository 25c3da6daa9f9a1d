// SPDX-License-Identifier: Apache-2.0
// A model with its optimizer and one batch, and a training step with or without communication.
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
  // Uses SGD with momentum, which keeps one value per parameter, and random samples.
  TrainingLoop(const models::ModelOptions& options, std::int64_t batch);

  models::Model& model() noexcept { return *model_; }
  // Runs one step without this runtime.
  void step();
  // Run one step with `replica` or `reducer`, which must belong to model().
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
