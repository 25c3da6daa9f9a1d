// SPDX-License-Identifier: Apache-2.0
// The parts of a model's parameters that this rank updates: what a ShardedOptimizer needs to know.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"

namespace ddp {

// A parameter in one of several flats.
struct PlaceInFlat {
  std::size_t flat = 0;
  std::size_t array = 0;
};

class ParameterShards {
 public:
  virtual ~ParameterShards() = default;
  ParameterShards() = default;
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  virtual const ShardGroups& groups() const noexcept = 0;
  // In which all divided parameters are, whether an optimizer has them or not.
  virtual const std::vector<std::unique_ptr<FlatShard>>& flats() const noexcept = 0;
  // The averaged gradient of a part, a vector; undefined if no rank has used its parameter.
  virtual torch::Tensor gradient_of(std::size_t flat, const FlatShard::Part& part) const = 0;
  // Whether there is a gradient of the parameter, the same on all ranks.
  virtual bool has_gradient(PlaceInFlat place) const = 0;
  // Around this rank's update of its parts. Both are collective.
  virtual void begin_update() = 0;
  virtual void publish() = 0;
};

// How an array is divided, for checkpoints.
struct ArrayDivision {
  // How many elements each rank saves, in the order of its memory. Of the ranks that have the same
  // part, one does. A single number if each rank has the whole array.
  std::vector<std::size_t> saved;
  std::size_t first = 0;  // element of this rank's part
};
ArrayDivision division_of(const ParameterShards& shards, PlaceInFlat place);

// Nullopt if the parameter is not divided.
std::optional<PlaceInFlat> find_place(const std::vector<std::unique_ptr<FlatShard>>& flats,
                                      const torch::Tensor& parameter);

}  // namespace ddp
