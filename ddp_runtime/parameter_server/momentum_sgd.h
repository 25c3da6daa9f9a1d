// SPDX-License-Identifier: Apache-2.0
// SGD with momentum, split so that gradients can be applied one by one. No side effects.
//
// Note [Momentum among many]
// Step t of synchronous training with the gradients g_1 .. g_N (each already a share of the mean)
// is
//
//   v = m v + d p + g_1 + .. + g_N       p = p - lr v      (d: weight decay of the previous p)
//
// and is linear in the gradients: it equals
//
//   tick:  v = m v + d p                 p = p - lr v
//   add:   v = v + g_k                   p = p - lr g_k    for each k, in any order, at any time
//
// An asynchronous server applies each gradient when it arrives (add), and applies the part that
// belongs to the step and not to a gradient (tick) once per step of the slowest rank. So there is
// one velocity of the parameters and not one per worker. It decays once per step of all ranks; once
// per gradient would be N times too fast. If no rank is ahead of another, the result is that of
// synchronous training except for rounding. Adam cannot be split like this, because it divides by a
// root of averaged squares, and one gradient's square is not the square of the mean.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddp::parameter_server {

class MomentumSgd {
 public:
  // `values` and `velocity` have the same length; weight decay applies to the first `decayed`.
  MomentumSgd(std::vector<float> values, std::vector<float> velocity, double momentum,
              double weight_decay, std::size_t decayed);

  void tick(double learning_rate);
  // `gradient` is as long as values().
  void add(std::span<const float> gradient, double learning_rate);

  std::span<const float> values() const noexcept { return values_; }
  std::span<const float> velocity() const noexcept { return velocity_; }

 private:
  std::vector<float> values_;
  std::vector<float> velocity_;
  float momentum_;
  float weight_decay_;
  std::size_t decayed_;
};

}  // namespace ddp::parameter_server
