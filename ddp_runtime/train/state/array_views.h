// SPDX-License-Identifier: Apache-2.0
// Tensors as the arrays of a checkpoint: their types, and views of their memory.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "ddp_runtime/train/state/state_array.h"
#include "hdf5_ckpt/core/array.h"

namespace ddp::train {

// Returns nullopt if a checkpoint cannot hold tensors of this type.
std::optional<ckpt::DType> stored_type(torch::ScalarType type);

// The inverse. Throws RuntimeError for a type that libtorch 1.13 does not have.
torch::ScalarType scalar_type(ckpt::DType type);

// The same values in host memory. Waits for tensors that are on a device.
std::vector<StateArray> on_host(std::vector<StateArray> arrays);

// Views of the memory of contiguous tensors, under their names and in their order: of parts, where
// this rank does not have the whole array. The tensors must outlive the views. Both throw
// RuntimeError if a tensor is not contiguous, or if a checkpoint cannot hold its type.
std::vector<ckpt::ArrayView> array_views(const std::vector<StateArray>& arrays);
std::vector<ckpt::MutableArrayView> mutable_views(const std::vector<StateArray>& arrays);

}  // namespace ddp::train
