// SPDX-License-Identifier: Apache-2.0
// On which ranks the tensors of a model are that is cut into stages.
#pragma once

#include <torch/torch.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "ddp_runtime/train/state/state_array.h"

namespace ddp::train {

class StageResidence {
 public:
  // `rank` of `ranks` is this process.
  StageResidence(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  // Adds a parameter or buffer, which must not have been added. The first of `ranks` saves it.
  void add(const torch::Tensor& tensor, std::vector<int> ranks);

  bool has(const torch::Tensor& tensor) const { return places_.contains(key_of(tensor)); }
  bool is_here(const torch::Tensor& tensor) const;

  // As an array of a checkpoint: the values of `like`, or what has its shape, on the ranks that
  // have it, and no rows on the others, where `values` may be undefined.
  StateArray array_of(std::string name, const torch::Tensor& values, const torch::Tensor& like,
                      torch::ScalarType type) const;

 private:
  static const c10::TensorImpl* key_of(const torch::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl();
  }

  int rank_;
  int ranks_;
  std::unordered_map<const c10::TensorImpl*, std::vector<int>> places_;
};

}  // namespace ddp::train
