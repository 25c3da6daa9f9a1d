// SPDX-License-Identifier: Apache-2.0
// What a step updates in one of its ways: a parameter with its state, and elements of several
// parameters that are updated together.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ddp::optim {

template <class Method>
struct StepPart {
  torch::Tensor parameter;
  torch::Tensor values;  // what is updated: its master, or the parameter itself
  const typename Method::Options* options;
  typename Method::State* state;
  std::int64_t number_of_step;
  typename Method::Update update;  // of a part that is updated in one pass, like the arrays
  typename Method::Arrays arrays;
  bool is_fused = false;
  bool updated = false;
  std::vector<torch::Tensor> earlier_flags = {};  // of steps that number_of_step counts

  bool has_master() const { return !values.is_same(parameter); }
};

// Elements of a part, in the order of its memory.
template <class Method>
struct Slice {
  const StepPart<Method>* part;
  std::int64_t first;
  std::int64_t count;
};

// The elements of all parts in windows of `most` elements.
template <class Method>
std::vector<std::vector<Slice<Method>>> cut_into_windows(const std::vector<StepPart<Method>>& parts,
                                                         std::int64_t most) {
  std::vector<std::vector<Slice<Method>>> windows;
  std::int64_t room = 0;
  for (const auto& part : parts) {
    for (std::int64_t first = 0; first < part.parameter.numel();) {
      if (room == 0) {
        windows.emplace_back();
        room = most;
      }
      const auto count = std::min(room, part.parameter.numel() - first);
      windows.back().push_back({&part, first, count});
      first += count;
      room -= count;
    }
  }
  return windows;
}

// The elements of a tensor without gaps, in the order of its memory.
inline torch::Tensor as_vector(const torch::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

}  // namespace ddp::optim
