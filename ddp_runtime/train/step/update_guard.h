// SPDX-License-Identifier: Apache-2.0
// Decides whether the update of a step is left out: if a loss is not finite on a rank, or a
// gradient after averaging, as after an overflow of the loss scale. Both depend on values that all
// ranks have, so all ranks leave out the same updates; ranks that have parts of the gradients tell
// each other.
//
// Note [The calls of a step]
// In this order, in a step that runs eagerly and in one that is replayed:
//
//   begin_step             G   forward
//   add_loss, scaled       G   for each micro-batch, before its backward
//   end_losses             G   before the last backward
//   ask                        \ collectives run between these two, beside the last backward,
//   await_answers              / and GPUs need them at the same place on all ranks
//   decide                 G   clipping and the update, unless it returned false
//   put_back_buffers       G
//   end_step                   and settle() when the host must know the result
//
// What only puts work on the device (G) is captured once in a graph and runs in each replay. The
// rest is the host's: SynchronousStep calls it between the parts of the graph, and after it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::train {

class UpdateGuard {
 public:
  // Must outlive the guard.
  struct Guarded {
    comm::Group& group;
    torch::nn::Module& module;
    torch::optim::Optimizer& optimizer;
    amp::GradScaler* scaler;  // null without loss scaling
    bool watch_losses;        // whether a loss that is not finite leaves out the update
  };

  virtual ~UpdateGuard() = default;
  UpdateGuard(const UpdateGuard&) = delete;
  UpdateGuard& operator=(const UpdateGuard&) = delete;

  // Before forward. If losses are watched, the buffers will be as they are now after an update that
  // is left out.
  virtual void begin_step();
  // The loss of a micro-batch, before scaling.
  virtual void add_loss(const torch::Tensor& loss) = 0;
  virtual torch::Tensor scaled(const torch::Tensor& loss) const = 0;
  // Before the last backward of a step: what this rank tells the others about its losses.
  virtual void end_losses() = 0;
  // Collective, afterwards: starts to tell them.
  virtual void ask() = 0;
  // After backward: waits for the other ranks' answers.
  virtual void await_answers() = 0;
  // Afterwards, before clipping: divides the gradients by the scale. Collective if the ranks have
  // parts of the gradients. Returns false if the caller must leave out the update; a guard on a
  // device lets the optimizer leave it out instead.
  enum class Have { all, parts };
  virtual bool decide(const std::vector<torch::Tensor>& gradients, Have have) = 0;
  // After the update, whether it was made or not.
  virtual void put_back_buffers() = 0;

  struct Result {
    std::int64_t step;
    std::string why;  // the reason for a skipped update, the same on all ranks; otherwise empty
  };
  // What end_step() needs of a device, as one tensor; undefined on the host.
  virtual torch::Tensor facts() const { return {}; }
  // At the end of step number `step`, with its facts(). Returns the newest result that is known
  // now and was not before: on a device, that of the step before.
  virtual std::optional<Result> end_step(std::int64_t step, const torch::Tensor& facts) = 0;
  // Waits for the result of the last step, unless it is known already.
  virtual std::optional<Result> settle() = 0;

 protected:
  explicit UpdateGuard(const Guarded& guarded) : guarded_(guarded) {}
  const Guarded& guarded() const noexcept { return guarded_; }
  const std::vector<torch::Tensor>& buffers_before() const noexcept { return buffers_before_; }

 private:
  Guarded guarded_;
  std::vector<torch::Tensor> buffers_before_;
};

// On the CPU the host decides at once; on another device the device does, and tells it later.
std::unique_ptr<UpdateGuard> make_guard(const UpdateGuard::Guarded& guarded, torch::Device device);

}  // namespace ddp::train
