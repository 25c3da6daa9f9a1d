// The learning rate of every step. Pure.
#pragma once

#include <cstdint>

namespace ddp::train {

// The linear scaling rule with gradual warm-up (Goyal et al., "Accurate, Large Minibatch SGD",
// 2017): a global batch k times as large takes a rate k times as large, reached by equal increments
// over the warm-up from the unscaled rate. Without scaling the warm-up starts from 0.
struct LearningRate {
  double base = 0.05;  // for one rank and one micro-batch
  double scale = 1;    // k
  std::int64_t warmup_steps = 0;

  double at(std::int64_t step) const noexcept;
};

}  // namespace ddp::train
