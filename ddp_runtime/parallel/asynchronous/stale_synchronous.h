// SPDX-License-Identifier: Apache-2.0
// Stale synchronous parallelism: data parallelism in which a rank waits for the others only if it
// is too far ahead. Every rank keeps its own, slightly different copy of the parameters and sends
// its gradients to parameter servers, one on each rank. docs/async.md explains when that helps.
//
//   ddp::StaleSynchronous replica(*net, world.group(), {.staleness = 4, .momentum = 0.9});
//   for (...) {
//     replica.backward(loss_of(net->forward(x), y));    // adds to this step's gradients
//     replica.step(learning_rate);                      // SGD, on the servers
//   }
//   replica.settle();                                   // one model everywhere: evaluate, save
//   replica.close();
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp::parameter_server {
class ParameterServer;
}  // namespace ddp::parameter_server

namespace ddp {

struct StaleSynchronousOptions {
  // Maximum number of steps by which a rank may be ahead of the slowest one; 0: synchronous
  // training.
  std::int64_t staleness = 4;
  double momentum = 0;
  double weight_decay = 0;  // for the parameters given as `decayed`
  // Allows parameters that a loss does not use: their gradient is zero. Otherwise they are an
  // error.
  bool allow_unused = false;
};

class StaleSynchronous {
 public:
  // Collective. Parameters and buffers take rank 0's values. Throws on all ranks: RuntimeError if
  // the models differ, and UsageError if the model has parameters that are not float32 or layers
  // that communicate in forward. Weight decay applies to the parameters in `decayed`. `module` and
  // `group` must outlive this object.
  StaleSynchronous(torch::nn::Module& module, comm::Group& group,
                   const StaleSynchronousOptions& options,
                   std::span<const torch::Tensor> decayed = {});
  StaleSynchronous(const StaleSynchronous&) = delete;
  StaleSynchronous& operator=(const StaleSynchronous&) = delete;
  ~StaleSynchronous();

  // Adds the gradients of a loss that is a mean over one of this rank's `micro_batches`.
  void backward(const torch::Tensor& loss, int micro_batches = 1);
  // Sends the gradients since the last step and receives new parameters. Waits while this rank
  // would be too far ahead. Throws RuntimeError naming a parameter without a gradient.
  void step(double learning_rate);
  // Like step(), but discards this rank's gradients.
  void step_without_update();

  // Collective, after the same number of steps on all ranks: brings parameters and momentum up to
  // date with all gradients, and buffers to rank 0's values, so that they are bitwise the same on
  // all ranks. Does nothing if there was no step since the last call.
  void settle();
  // Collective, after the last step. Afterwards only the destructor may be called.
  void close();

  // The optimizer's momentum by parameter, as of the last settle(); empty without momentum. Save it
  // in checkpoints, and restore it before the first step.
  const std::vector<NamedTensor>& momentum() const noexcept { return momentum_; }

  comm::Group& group() noexcept { return group_; }
  // How far this rank was ahead of the slowest rank at the beginning of its steps.
  struct Lead {
    std::int64_t largest = 0;
    double mean = 0;
  };
  Lead lead() const;
  // Number of bytes that this rank sends and receives in a step.
  std::size_t bytes_per_step() const;

 private:
  void start();
  void push_and_pull(std::span<const float> gradient, double learning_rate);
  void forget_gradients();

  comm::Group& group_;
  StaleSynchronousOptions options_;
  std::vector<NamedTensor> parameters_;  // those that require gradients; decayed ones come first
  std::vector<NamedTensor> buffers_;
  std::vector<NamedTensor> momentum_;                          // windows on velocity_
  std::int64_t decayed_ = 0;                                   // number of elements
  torch::Tensor values_;                                       // flat, of all parameters_
  torch::Tensor gradients_;                                    // flat
  torch::Tensor velocity_;                                     // flat, as of the last settle()
  std::unique_ptr<parameter_server::ParameterServer> server_;  // from the first step on
  bool settled_ = true;
};

}  // namespace ddp
