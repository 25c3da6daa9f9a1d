// SPDX-License-Identifier: Apache-2.0
// An UpdateGuard for steps on a device, which tells the host in the next step. The optimizer, the
// scaler and the buffers take the decision as a flag on the device; see Note [Skipped steps]. The
// host learns it together with the scale and the ranks, see Note [Late values], for the messages,
// the step counts and the state that a checkpoint saves.
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
#include "ddp_runtime/train/step/update_guard.h"

namespace ddp::train {

class DeviceGuard final : public UpdateGuard {
 public:
  // The optimizer must be one of ddp::optim's, or divide one. The scaler's state becomes that after
  // the newest step with a result.
  DeviceGuard(const Guarded& guarded, torch::Device device);

  void begin_step() override;
  void add_loss(const torch::Tensor& loss) override;
  torch::Tensor scaled(const torch::Tensor& loss) const override;
  void end_losses() override;
  void ask() override;
  void await_answers() override;
  bool decide(const std::vector<torch::Tensor>& gradients, Have have) override;
  void put_back_buffers() override;
  torch::Tensor facts() const override;
  std::optional<Result> end_step(std::int64_t step, const torch::Tensor& facts) override;
  std::optional<Result> settle() override;

 private:
  struct Step {
    std::int64_t number;
    LateTensor facts;
  };

  Result result_of(const Step& step);
  std::string reason(const float* facts, float scale_before) const;

  torch::TensorOptions floats_;  // on the device
  optim::SkipsSteps& optimizer_;
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
