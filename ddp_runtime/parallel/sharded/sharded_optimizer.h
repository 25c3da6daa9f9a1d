// SPDX-License-Identifier: Apache-2.0
// An optimizer whose state and work are divided among the ranks: stage 1 of ZeRO (Rajbhandari et
// al., 2020), for data parallelism in a loop of your own.
//
//   ddp::DistributedDataParallel replica(*net, group);
//   ddp::ShardedOptimizer optimizer(
//       std::make_unique<ddp::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3)),
//       group);
//   ...
//   step.backward(loss);
//   step.apply(optimizer);
//
// Each rank updates about 1/n of the rows of the parameters, and keeps the optimizer's state for
// these only; then the ranks exchange what they have updated. The parameters have the same bits as
// without shards, because the optimizers that can be divided update each element by itself.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/parallel/sharded/shard_plan.h"

namespace ddp {

class ShardedOptimizer final : public torch::optim::Optimizer {
 public:
  // Collective. Takes over an optimizer without state: SGD, Adam, AdamW or RMSprop, of libtorch or
  // ddp::optim. Its parameters must be dense, have the same values on all ranks, and be updated by
  // no other optimizer; their values move to memory of the group. `group` must outlive this object.
  // Throws UsageError, on all ranks, for other optimizers and parameters.
  ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer, comm::Group& group);
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  ~ShardedOptimizer() override;

  // Collective: all ranks call it with the same gradients, options and groups. The options, such as
  // the learning rate, are those of param_groups(). A parameter without a gradient keeps its value
  // and its state. Throws UsageError for sparse gradients, and if groups were added; RuntimeError
  // if a parameter's memory was replaced, as by Module::to(), and, in the first step and in every
  // 100th after it, if the ranks' learning rates differ or some lack gradients that others have.
  torch::Tensor step(LossClosure closure = nullptr) override;

  // Throw UsageError: files of libtorch have no parts.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  // What updates this rank's rows: its parameters are parts of the real ones, as vectors, and its
  // state is all that this rank has.
  torch::optim::Optimizer& shard() const noexcept { return *optimizer_; }
  comm::Group& group() const noexcept { return group_; }

  // For checkpoints. `whole` is a tensor with the sizes and strides of the parameter.

  // This rank's part of a parameter, as shard() has it; undefined if it has no rows of it, or if
  // the parameter is not one of this optimizer.
  torch::Tensor part_of(const torch::Tensor& parameter) const;
  // The elements of `whole` at the places of this rank's part, which exists: a vector that shares
  // its memory.
  torch::Tensor rows_in(const torch::Tensor& whole, const torch::Tensor& parameter) const;
  // Collective. Gives every rank the rows that others have in their `whole`.
  void exchange_rows(const torch::Tensor& whole, const torch::Tensor& parameter) const;

 private:
  struct Array {
    torch::Tensor parameter;
    const void* memory = nullptr;
  };
  struct Part {
    RowRange rows;
    torch::Tensor values;  // a vector; of the parameter's memory
  };
  struct Flat {
    std::shared_ptr<std::byte> memory;
    torch::Tensor values;
    std::vector<std::size_t> sizes;  // of the ranks' shards
  };
  class LentGradients;

  const Part* find_part(const torch::Tensor& parameter) const;
  std::optional<std::size_t> find_array(const torch::Tensor& parameter) const;
  torch::Tensor vector_of(const torch::Tensor& whole, const RowRange& rows) const;
  void list_arrays();
  void require_same_list() const;
  void require_same_update() const;
  void move_to_flat_memory();
  void give_parts_to_the_optimizer();
  void require_usable() const;
  void take_options();
  torch::Tensor gradient_of(const Part& part) const;
  void exchange();

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  comm::Group& group_;
  std::vector<Array> arrays_;  // in the order of the groups
  std::vector<ArraySize> sizes_;
  ShardPlan plan_;
  std::vector<Flat> flats_;
  std::vector<Part> parts_;
  std::int64_t steps_ = 0;
};

}  // namespace ddp
