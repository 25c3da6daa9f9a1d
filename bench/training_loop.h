// SPDX-License-Identifier: Apache-2.0
// A model with its optimizer and one batch, and a training step with or without communication.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/reducer_peer.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"

namespace ddp::bench {

// Where and how a loop computes.
struct Computation {
  torch::Device device = torch::kCPU;
  bool bf16 = false;           // autocast; otherwise float32
  bool channels_last = false;  // see train::store_channels_last()
};

const char* precision_of(const Computation& how);

// Of all loops with this optimizer.
double learning_rate_of(const std::string& optimizer);

class TrainingLoop {
 public:
  // The optimizer of libtorch, or of ddp::optim.
  enum class Library : std::uint8_t { torch, ours };

  // Uses random samples. `optimizer` is sgd (with momentum, one value per parameter), adam or
  // adamw. Throws UsageError for another one, and for a computation that is not possible.
  TrainingLoop(const models::ModelOptions& options, std::int64_t batch,
               const std::string& optimizer = "sgd", Library library = Library::torch,
               const Computation& how = {});

  models::Model& model() noexcept { return *model_; }
  const torch::optim::Optimizer& optimizer() const noexcept { return *optimizer_; }
  const Computation& computation() const noexcept { return how_; }
  // On the device of the computation.
  data::Batch batch() const { return {inputs_, targets_}; }
  // Runs one step without this runtime.
  void step();
  // The same without the update: no optimizer makes a step faster than this.
  void step_without_update();
  // Run one step with `replica` or `reducer`, which must belong to model().
  void step(DistributedDataParallel& replica);
  void step(ReducerPeer& reducer);
  // Collective. From here on, the optimizer's state and work are divided among the ranks, or the
  // "gradients" or "parameters", too. Returns the replica for step().
  std::unique_ptr<DistributedDataParallel> shard(comm::Group& group, const std::string& what,
                                                 const BucketLimits& buckets);
  // The same step as with `replica`, but each bucket is updated when it arrives.
  void step_by_bucket(DistributedDataParallel& replica);
  // Waits until the device has done the steps, which return before.
  void finish();

 private:
  torch::Tensor loss();
  void forget_gradients();

  Computation how_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  torch::Tensor inputs_;
  torch::Tensor targets_;
};

// `name` as above; its learning rate is learning_rate_of(name).
std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<torch::Tensor> parameters,
                                                        const std::string& name,
                                                        TrainingLoop::Library library);

}  // namespace ddp::bench
