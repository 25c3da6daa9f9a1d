// SPDX-License-Identifier: Apache-2.0
// Which tensors can be updated as arrays of floats.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace ddp::optim {

// Whether the tensor's values are of this type, in CPU memory without gaps, and what its memory
// holds is what the tensor means: not a sparse tensor, not a lazy negation, not a tensor of a
// function transform.
bool is_plain(const torch::Tensor& tensor, torch::ScalarType type = torch::kFloat32);

// Whether elements at the same place in memory of two tensors without gaps have the same index. The
// strides of dimensions of size 1 may differ, as they do between the weight of a 1x1 convolution in
// channels-last memory and its gradient.
bool same_order(const torch::Tensor& a, const torch::Tensor& b);

// The memory of a step, to find tensors that share it: parameters that are views of each other, a
// parameter that is given twice, a gradient that is the parameter itself.
class MemoryRanges {
 public:
  void add_read(const torch::Tensor& tensor) { add(tensor, false); }
  void add_written(const torch::Tensor& tensor) { add(tensor, true); }

  // Whether an element that is written belongs to two of the tensors.
  bool overlap() const;

 private:
  struct Range {
    const char* begin;
    const char* end;
    bool written;
  };

  void add(const torch::Tensor& tensor, bool written);

  std::vector<Range> ranges_;
};

}  // namespace ddp::optim
