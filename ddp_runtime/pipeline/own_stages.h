// SPDX-License-Identifier: Apache-2.0
// The stages that a rank runs, and their parameters.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/pipeline/stage.h"

namespace ddp::pipeline {

struct OwnStage {
  int number = 0;
  Stage stage;
};

// Parameters and buffers are named "stages.2.weight".
std::vector<NamedTensor> parameters_of(const OwnStage& own);
std::vector<NamedTensor> buffers_of(const OwnStage& own);

}  // namespace ddp::pipeline
