// SPDX-License-Identifier: Apache-2.0
// Loss scaling for float16, the counterpart of Python's torch.cuda.amp.GradScaler, on any device.
//
// Note [Loss scale]
// Gradients below 6e-8 vanish in float16. So the loss, and with it every gradient, is multiplied by
// a scale before backward, and the gradients are divided by it afterwards. If a scale that is too
// large makes gradients infinite, the update is skipped and the scale is halved. Micikevicius et
// al., "Mixed Precision Training" (2018). The scale must be the same on all ranks, or averaged
// gradients are meaningless. It stays the same because it depends only on the averaged gradients:
// infinity on one rank is infinity on all after the all-reduce, or is found by the rank that has
// this part of the gradients, which tells the others. DistributedDataParallel's tag enforces that.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp::amp {

struct GradScalerOptions {
  float initial_scale = 65536;
  float growth_factor = 2;
  float backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // number of consecutive updates without overflow
};

// Those that are defined.
std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters);

// Divides the gradients by `scale`. Returns false if one is not finite. With a scale of 1, it only
// checks.
bool unscale_each(const std::vector<torch::Tensor>& gradients, float scale);
// The same with the gradients of `parameters`.
bool unscale_gradients(const std::vector<torch::Tensor>& parameters, float scale);

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {})
      : options_(options), state_{options.initial_scale, 0} {}

  torch::Tensor scale_loss(const torch::Tensor& loss) const { return loss * state_.scale; }
  // Call after averaging the gradients over the ranks, before clipping. Returns false if the update
  // must be skipped.
  bool unscale(const std::vector<torch::Tensor>& parameters) const {
    return unscale_gradients(parameters, state_.scale);
  }
  // The same with this rank's parts of divided gradients (ShardedOptimizer::gradients()). The
  // result is about these only, so reduce it over the ranks: all must skip the update together.
  bool unscale_parts(const std::vector<torch::Tensor>& gradients) const {
    return unscale_each(gradients, state_.scale);
  }
  // Call after each step, with the result of unscale(). Uses float arithmetic, as PyTorch does, so
  // that the sequence of scales is the same; a scale that would overflow does not grow.
  void update(bool finite);

  struct State {
    float scale = 0;
    std::int64_t updates_since_change = 0;
  };
  const State& state() const noexcept { return state_; }
  float scale() const noexcept { return state_.scale; }
  const GradScalerOptions& options() const noexcept { return options_; }
  void restore(const State& state) noexcept { state_ = state; }

 private:
  GradScalerOptions options_;
  State state_;
};

}  // namespace ddp::amp
