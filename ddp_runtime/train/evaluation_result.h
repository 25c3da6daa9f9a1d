// What evaluating a model gave.
#pragma once

#include <cstdint>

namespace ddp::train {

struct Evaluation {
  double loss = 0;      // mean cross-entropy in nats per target
  double accuracy = 0;  // share of targets with the highest score
  std::int64_t targets = 0;
};

}  // namespace ddp::train
