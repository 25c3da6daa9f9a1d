// SPDX-License-Identifier: Apache-2.0
// The loss scale that the options of a training ask for. See Note [Loss scale].
#pragma once

#include <cstdint>
#include <optional>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

std::optional<amp::GradScaler> make_scaler(const TrainOptions& options);

// Adds the loss scale to the values that must be equal on all ranks, which include the position.
// Call before a step settles the previous one: on a device, ranks whose steps run eagerly and ranks
// that replay a graph know the newest scale after different steps.
std::int64_t with_scale(std::int64_t tag, const std::optional<amp::GradScaler>& scaler);

}  // namespace ddp::train
