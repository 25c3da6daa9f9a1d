// SPDX-License-Identifier: Apache-2.0
// What does not go together with a model that is cut into stages.
#pragma once

#include "ddp_runtime/train/objective/objective.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// Throws UsageError, with both names, for options that do not go together with options.stages, and
// for micro-batches that the schedule cannot have. Does nothing without stages.
void require_possible_with_stages(const TrainOptions& options);

// Of a task with stages. Throws UsageError.
void require_possible_with_stages(const Objective& objective, bool own_optimizer);

}  // namespace ddp::train
