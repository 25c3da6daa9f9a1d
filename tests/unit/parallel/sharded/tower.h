// SPDX-License-Identifier: Apache-2.0
// A model with units, to test sharded training.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/layers/activation_checkpoint.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {

inline constexpr std::int64_t kWidth = 6;

// x [n, width]
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm", norm);
    register_module("expand", expand);
    register_module("contract", contract);
    if (!on_device()) register_module("recurrent", recurrent);  // the simulated one has no GRU
    scale = register_parameter("scale", torch::tensor(0.9F));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = contract(torch::gelu(expand(norm(x)))) * scale;
    if (on_device()) return x + y;
    const auto outputs = std::get<0>(recurrent(x.unsqueeze(0)));
    return x + y + outputs.squeeze(0);
  }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear expand{kWidth, 9};
  torch::nn::Linear contract{9, kWidth};
  torch::nn::GRU recurrent{kWidth, kWidth};
  torch::Tensor scale;
};
TORCH_MODULE(Block);

// Tokens and scores share a weight, which is the root's.
struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    register_module("tokens", tokens);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    register_module("spare", spare);
  }
  torch::Tensor through(const std::shared_ptr<BlockImpl>& block, const torch::Tensor& x) {
    if (!recompute || !torch::GradMode::is_enabled()) return unit(block)(x);
    const auto function = [block](const std::vector<torch::Tensor>& in) {
      return unit(block)(in[0]);
    };
    return checkpointed(function, {x}, block->parameters());
  }
  torch::Tensor forward(const torch::Tensor& numbers, bool uses_spare = true) {
    auto x = tokens(numbers);
    for (const int i : calls) x = through(blocks->ptr<BlockImpl>(static_cast<std::size_t>(i)), x);
    if (uses_spare) x = x + unit(spare)(x);
    return torch::linear(x, tokens->weight);
  }

  torch::nn::Embedding tokens{11, kWidth};
  torch::nn::ModuleList blocks;
  torch::nn::Linear spare{kWidth, kWidth};
  std::vector<int> calls = {0, 1, 2};
  bool recompute = false;
};
TORCH_MODULE(Tower);

inline torch::Tensor numbers_of(int batch) {
  return on_test_device((torch::arange(5, torch::kInt64) * 7 + 3 * batch) % 11);
}

inline torch::Tensor loss_of_tower(const torch::Tensor& scores, int batch) {
  return torch::nn::functional::cross_entropy(scores, numbers_of(batch + 1));
}

inline void backward_of_tower(Tower& net, GradientStep& step, int batch) {
  step.backward(loss_of_tower(net->forward(numbers_of(batch)), batch));
}

inline void step_of_tower(Tower& net, DistributedDataParallel& replica,
                          torch::optim::Optimizer& optimizer, int batch) {
  auto step = replica.begin_step();
  backward_of_tower(net, step, batch);
  step.apply(optimizer);
}

inline ShardOptions parameters_in(std::vector<std::string> units) {
  ShardOptions options;
  options.shard = Shard::parameters;
  options.units = std::move(units);
  return options;
}

inline ShardOptions in_units() {
  return parameters_in({"blocks.*", "spare"});
}

using OnShardedTower = std::function<void(Tower&, ShardedDataParallel&, comm::Group&)>;

inline void with_sharded_tower(int ranks, const ShardOptions& options, const OnShardedTower& body) {
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    ShardedDataParallel replica(*net, group, options);
    body(net, replica, group);
  });
}

}  // namespace ddp::test
