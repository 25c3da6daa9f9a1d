// Loss scaling for float16, what torch.cuda.amp.GradScaler is in Python, on any device.
//
// Note [Loss scale]
// Gradients below 6e-8 vanish in float16. The loss, and with it every gradient, is multiplied by a
// scale before backward and divided by it after; a scale that is too large makes gradients
// infinite, the update is left out and the scale halved. Micikevicius et al., "Mixed Precision
// Training" (2018). On several ranks the scale must be the same everywhere, or averaged gradients
// mean nothing. It stays the same because it follows from the averaged gradients only: infinity on
// one rank is infinity on all after the all-reduce. DistributedDataParallel's tag holds it to that.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp::amp {

struct GradScalerOptions {
  float initial_scale = 65536;
  float growth_factor = 2;
  float backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // updates in a row without overflow
};

// Divides the gradients of `parameters` by `scale`, those that there are. False if one of them is
// not finite. A scale of 1 only looks.
bool unscale_gradients(const std::vector<torch::Tensor>& parameters, float scale);

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {})
      : options_(options), state_{options.initial_scale, 0} {}

  torch::Tensor scale_loss(const torch::Tensor& loss) const { return loss * state_.scale; }
  // After the gradients were averaged over the ranks, before clipping. False: leave the update out.
  bool unscale(const std::vector<torch::Tensor>& parameters) const {
    return unscale_gradients(parameters, state_.scale);
  }
  // After each step, with what unscale() said. In float arithmetic, as in PyTorch, so that the
  // sequence of scales is the same; a scale that would overflow does not grow.
  void update(bool finite);

  struct State {
    float scale = 0;
    std::int64_t updates_since_change = 0;
  };
  const State& state() const noexcept { return state_; }
  float scale() const noexcept { return state_.scale; }
  void restore(const State& state) noexcept { state_ = state; }

 private:
  GradScalerOptions options_;
  State state_;
};

}  // namespace ddp::amp
