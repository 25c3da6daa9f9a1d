// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer as that of the optimizer which it divides, so that a checkpoint
// has the same arrays with and without shards.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/state_fields.h"

namespace ddp::train {

class WholeState {
 public:
  // `sharded` must outlive this object.
  explicit WholeState(ShardedOptimizer& sharded);

  // Of this rank's rows.
  torch::optim::Optimizer& optimizer() const noexcept { return sharded_.shard(); }
  const StateFields* fields() const noexcept { return fields_; }

  // Collective. "<parameter>/<field>" for all that any rank has, in memory of their own, the same
  // on all ranks.
  std::vector<NamedTensor> gather(const std::vector<NamedTensor>& parameters) const;

  // A tensor for the whole field; undefined if there is no such field.
  torch::Tensor allocate(const torch::Tensor& parameter, const std::string& field) const;
  // Copies this rank's rows of the field into its state.
  void keep_rows(const torch::Tensor& parameter, const std::string& field,
                 const torch::Tensor& whole);

 private:
  struct Entry {
    std::string field;
    torch::ScalarType type = torch::kFloat32;
    std::int64_t step = 0;  // for the field "step"
  };
  std::vector<NamedTensor> my_fields(const NamedTensor& parameter) const;
  std::vector<std::vector<Entry>> all_entries(const std::vector<NamedTensor>& parameters) const;
  torch::Tensor gather_field(const NamedTensor& parameter, const Entry& entry) const;

  ShardedOptimizer& sharded_;
  const StateFields* fields_;
};

}  // namespace ddp::train
