#include "ddp_runtime/train/learning_rate.h"

namespace ddp::train {

double LearningRate::at(std::int64_t step) const noexcept {
  const double target = base * scale;
  if (step >= warmup_steps) return target;
  const double start = scale > 1 ? base : 0;
  return start +
         (target - start) * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
}

}  // namespace ddp::train
