// SPDX-License-Identifier: Apache-2.0
// Decides on a device whether the update of a step is skipped, and tells the host in the next step.
//
// A step is skipped if its loss is not finite on a rank, or a gradient after averaging. Both depend
// on values that all ranks have, so each rank gets the same flag; ranks that have parts of the
// gradients reduce the flag, too. The optimizer, the scaler and the buffers take the flag on the
// device; see Note [Skipped steps]. The host learns it together with the scale and the ranks, see
// Note [Late values], for the messages, the step counts and the state that a checkpoint saves.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/amp/device_grad_scaler.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/optim/skipped_steps.h"
#include "ddp_runtime/parallel/device/late_value.h"

namespace ddp::train {

class DeviceSkips {
 public:
  // `optimizer` must be one of ddp::optim's, or divide one. `scaler` is null without loss scaling;
  // its state becomes that after the newest step with a result. `watch_losses`: whether a loss that
  // is not finite skips the update. The arguments must outlive this object.
  DeviceSkips(comm::Group& group, torch::Device device, torch::optim::Optimizer& optimizer,
              amp::GradScaler* scaler, bool watch_losses);

  void begin_step();
  // The loss of a micro-batch, before scaling.
  void add_loss(const torch::Tensor& loss);
  torch::Tensor scaled(const torch::Tensor& loss) const;
  // Before the last backward of a step: what this rank tells the others about its losses.
  void end_losses();
  // Collective, afterwards: starts to tell them.
  void ask();
  // After backward: waits for the other ranks' answers.
  void await_answers();
  // Afterwards, before clipping: divides the gradients by the scale, and decides whether the
  // optimizer's next step is skipped. Collective if the ranks have parts of the gradients.
  enum class Have { all, parts };
  void decide(const std::vector<torch::Tensor>& gradients, Have have);
  // Gives the buffers the values of `before` if the step is skipped.
  void put_back(const std::vector<torch::Tensor>& buffers,
                const std::vector<torch::Tensor>& before) const;

  struct Result {
    std::int64_t step;
    std::string why;  // the reason for a skipped update, the same on all ranks; otherwise empty
  };
  // After the update: what the host has to know about the step, as one tensor.
  torch::Tensor facts() const;
  // After the update of step number `step`, with its facts(). Returns the result of the previous
  // step, unless it is known already.
  std::optional<Result> end_step(std::int64_t step, const torch::Tensor& facts);
  // Waits for the result of the last step, unless it is known already.
  std::optional<Result> settle();

 private:
  struct Step {
    std::int64_t number;
    LateTensor facts;
  };

  Result result_of(const Step& step);
  std::string reason(const float* facts, float scale_before) const;

  comm::Group& group_;
  torch::TensorOptions floats_;  // on the device
  optim::SkipsSteps& optimizer_;
  amp::GradScaler* scaler_;
  bool watch_losses_;
  std::optional<amp::DeviceGradScaler> device_scaler_;

  torch::Tensor bad_loss_;  // 1 if a loss of this step is not finite on this rank
  // [ranks]: the same for each rank, if losses are watched. In the same memory in all steps: ask()
  // is called between the parts of a graph that was captured before later steps ran eagerly.
  torch::Tensor bad_ranks_;
  comm::Work asked_;
  torch::Tensor skip_;          // 1 if this step's update is skipped
  std::optional<Step> newest_;  // a step whose result is not known yet
};

}  // namespace ddp::train
