// SPDX-License-Identifier: Apache-2.0
// Memory for parameters while they are whole. It is reused, because units become whole one after
// the other, and memory that goes back to the system in between would have to be cleared each time.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp {

class WholeMemory {
 public:
  // A vector of at least this many bytes, on `device`, with any values.
  torch::Tensor take(std::int64_t bytes, torch::Device device);
  void give_back(torch::Tensor memory);

 private:
  std::vector<torch::Tensor> free_;
};

}  // namespace ddp
