// SPDX-License-Identifier: Apache-2.0
// Checkpoints from which an evaluation takes the weights, and nothing of the training.
#pragma once

#include <optional>

#include "ddp_runtime/train/state/model_arrays.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {

// What read_into() checks for a whole checkpoint. Throws ckpt::MismatchError for weights that the
// model lacks, and for an average that the user's tensors have and the checkpoint has not.
void require_same_weights(const ckpt::Checkpoint& checkpoint, const ModelArrays& model);

// The decay of an average of the weights that the checkpoint has besides them, and that is not
// among the user's tensors.
std::optional<double> average_left_in(const ckpt::Checkpoint& checkpoint, const UserState& user);

}  // namespace ddp::train
