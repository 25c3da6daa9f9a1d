// SPDX-License-Identifier: Apache-2.0
// An array of a training's state, as one rank has it: all of it, or the rows that are divided among
// the ranks.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"

namespace ddp::train {

// Each rank has a range of the array's rows (dimension 0). Ranks may have the same range, of which
// one saves it. An array without dimensions is one row.
struct Division {
  std::vector<std::int64_t> sizes;    // of the whole array
  std::vector<std::size_t> elements;  // that each rank saves
  std::int64_t first = 0;             // this rank's first row
};

struct StateArray {
  std::string name;
  // If the array is divided, this rank's rows in the order of the whole array; without elements if
  // it has none.
  torch::Tensor tensor;
  std::optional<Division> division = {};  // nullopt: each rank has the whole array

  // Of the whole array; the same on all ranks.
  at::IntArrayRef sizes() const;
  std::uint64_t bytes() const;
};

// The rows of a part of a parameter, which is a vector of its elements in the order of the
// parameter's memory: a view with the parameter's strides.
torch::Tensor as_rows(const torch::Tensor& part, const torch::Tensor& parameter);
// The same of a rank that has no rows.
torch::Tensor no_rows(const torch::Tensor& parameter, torch::ScalarType type);
// Adds the division of an array with the shape of the parameter, which is divided like it, unless
// there is nothing to divide.
StateArray with_division(StateArray array, const torch::Tensor& parameter, ArrayDivision like);

}  // namespace ddp::train
