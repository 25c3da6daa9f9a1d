// What evaluating a model gave.
#pragma once

#include <cstdint>

namespace ddp::train {

struct Evaluation {
  double loss = 0;      // mean cross-entropy in nats per target, or the mean of the own loss
  double accuracy = 0;  // share of targets with the highest score; NaN with a loss of one's own
  std::int64_t targets = 0;  // with a loss of one's own: samples
};

}  // namespace ddp::train
