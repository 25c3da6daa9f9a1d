// SPDX-License-Identifier: Apache-2.0
// An UpdateGuard for steps on the CPU.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/step/loss_watch.h"
#include "ddp_runtime/train/step/update_guard.h"

namespace ddp::train {

class HostGuard final : public UpdateGuard {
 public:
  explicit HostGuard(const Guarded& guarded);

  void begin_step() override;
  void add_loss(const torch::Tensor& loss) override;
  torch::Tensor scaled(const torch::Tensor& loss) const override;
  void end_losses() override {}
  void ask() override;
  void await_answers() override;
  bool decide(const std::vector<torch::Tensor>& gradients, Have have) override;
  void put_back_buffers() override;
  std::optional<Result> end_step(std::int64_t step, const torch::Tensor& facts) override;
  std::optional<Result> settle() override { return std::nullopt; }

 private:
  bool unscale(const std::vector<torch::Tensor>& gradients, Have have) const;

  std::optional<LossWatch> watch_;  // set if losses are watched
  bool finite_ = true;              // this rank's losses of this step
  std::vector<int> ranks_;          // of the job, whose loss of this step is not
  std::string why_;                 // empty: the update is made
};

}  // namespace ddp::train
