// SPDX-License-Identifier: Apache-2.0
// Where a run is between two steps: the small JSON text of a checkpoint.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/train/objective/best_evaluation.h"

namespace ddp::train {

struct Position {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of this epoch, over all ranks
  std::int64_t step = 0;      // optimizer steps since the beginning of the run
  double loss_sum = 0;        // over this epoch's steps so far
  std::int64_t loss_steps = 0;
  // Samples of a step when the run began, in which its schedule counts; 0: an old checkpoint.
  std::int64_t first_batch = 0;
  BestEvaluation best = {};
  amp::GradScaler::State loss_scale = {};  // a scale of 0: the run did not use one

  void begin_epoch(std::int64_t number);

  nlohmann::json to_json() const;
  static Position from_json(const nlohmann::json& json);  // throws UsageError
};

}  // namespace ddp::train
