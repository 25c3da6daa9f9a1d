// SPDX-License-Identifier: Apache-2.0
// The result of evaluating a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ddp::train {

struct Evaluation {
  double loss = 0;      // mean cross-entropy in nats per target, or the mean of the custom loss
  double accuracy = 0;  // share of targets with the highest score; NaN with a custom loss
  std::int64_t targets = 0;  // with a custom loss: samples, or the sum of the batches' weights
  std::map<std::string, double> metrics = {};  // means of the program's metrics, by name
};

}  // namespace ddp::train
