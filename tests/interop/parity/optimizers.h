// SPDX-License-Identifier: Apache-2.0
// The optimizer of a case of the parity test (cases.py), as a user of this project makes it, or
// with the classes of libtorch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace parity {

struct Case {
  std::string name;
  int micro_batches = 1;
  std::string optimizer;
  nlohmann::json options;
  bool like_ddp_train = false;
  std::string type;
};

enum class Library : std::uint8_t { ours, libtorch };

// `parameters`: the module's, or float32 masters in their place and in their order. Of RMSprop and
// Adagrad, there are only libtorch's.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const Case& run, Library library, const torch::nn::Module& module,
    const std::vector<torch::Tensor>& parameters);

}  // namespace parity
