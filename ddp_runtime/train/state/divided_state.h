// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer by the names and shapes of the optimizer which it divides, so
// that a checkpoint has the same arrays with and without shards. No rank ever has more than its
// rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/state/state_array.h"
#include "ddp_runtime/train/state/state_fields.h"

namespace ddp::train {

class DividedState {
 public:
  // `sharded` must outlive this object.
  explicit DividedState(ShardedOptimizer& sharded);

  // Of this rank's rows.
  torch::optim::Optimizer& optimizer() const noexcept { return sharded_.shard(); }
  const StateFields* fields() const noexcept { return fields_; }

  // Collective. "<parameter>/<field>" for all that any rank has, the same on all ranks except for
  // the rows, which share the optimizer's memory. The steps are whole.
  std::vector<StateArray> arrays(const std::vector<NamedTensor>& parameters) const;

  // New state for this rank's rows of a field, with zeros; for the step, a scalar. The tensor is
  // undefined if there is no such field. A scalar of which another rank has the state is whole, and
  // what is written to it is lost.
  StateArray allocate(const NamedTensor& parameter, const std::string& field);
  void set_step(const torch::Tensor& parameter, std::int64_t step);

 private:
  struct Entry {
    std::string field;
    torch::ScalarType type = torch::kFloat32;
    std::int64_t step = 0;  // for the field "step"
  };
  std::vector<NamedTensor> my_fields(const NamedTensor& parameter) const;
  std::vector<std::vector<Entry>> all_entries(const std::vector<NamedTensor>& parameters) const;
  StateArray array_of(const NamedTensor& parameter, const Entry& entry) const;
  StateArray divided(StateArray array, const torch::Tensor& parameter) const;

  ShardedOptimizer& sharded_;
  const StateFields* fields_;
};

}  // namespace ddp::train
