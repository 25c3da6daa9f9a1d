// SPDX-License-Identifier: Apache-2.0
// Weights that several stages have in common, such as that of an embedding and of the last layer.
//
// Each stage has a copy. All copies begin with the values of the first one, and get the same
// gradient: the sum of their own, which the ranks that have one exchange after the last backward.
// So every optimizer that treats them alike keeps them equal. In one process, the gradients of all
// uses would be added up micro-batch by micro-batch, so the sum may differ in rounding.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/pipeline/own_stages.h"

namespace ddp::pipeline {

struct StageParameter {
  int stage = 0;
  std::string name = {};  // in the stage's module: "head.weight"
};

// Copies of one weight, in the order of their stages.
using TiedWeight = std::vector<StageParameter>;

class TiedWeights {
 public:
  // Collective over `pipe`, with the same `weights` on all ranks. Throws UsageError for a parameter
  // that a stage does not have, RuntimeError if copies differ in shape or type.
  TiedWeights(comm::Group& pipe, const std::vector<OwnStage>& stages,
              const std::vector<TiedWeight>& weights);

  // Collective over the ranks that have copies, after the gradients were averaged over replicas.
  void add_up();
  // Whether it is a copy other than the first one of a weight.
  bool is_further_copy(const torch::Tensor& parameter) const noexcept;

 private:
  struct Copies {
    std::vector<torch::Tensor> own;  // of this rank, in the order of their stages
    comm::Group* group = nullptr;    // of the ranks that have copies; null if there is one
  };
  static void add_up(const Copies& copies);

  std::vector<Copies> weights_;
  std::vector<torch::Tensor> further_;
};

}  // namespace ddp::pipeline
