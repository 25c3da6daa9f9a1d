// SPDX-License-Identifier: Apache-2.0
// ShardedDataParallel compared with DistributedDataParallel, with ranks as threads.
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/activation_checkpoint.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/parallel/sharded/unit.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;
using Values = std::map<std::string, torch::Tensor>;

constexpr int kSteps = 4;
constexpr std::int64_t kWidth = 6;

// x [n, width]
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm", norm);
    register_module("expand", expand);
    register_module("contract", contract);
    register_module("recurrent", recurrent);
    scale = register_parameter("scale", torch::tensor(0.9F));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = contract(torch::gelu(expand(norm(x)))) * scale;
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

torch::Tensor numbers_of(int batch) {
  return on_test_device((torch::arange(5, torch::kInt64) * 7 + 3 * batch) % 11);
}

torch::Tensor loss_of_tower(const torch::Tensor& scores, int batch) {
  return torch::nn::functional::cross_entropy(scores, numbers_of(batch + 1));
}

struct Trial {
  std::string name;
  std::function<void(TowerImpl&)> change = [](TowerImpl&) {};
  int micro_batches = 1;
  bool allow_unused = false;
  // Whether a rank uses the spare unit in a step.
  std::function<bool(int rank, int step)> uses_spare = [](int, int) { return true; };

  friend std::ostream& operator<<(std::ostream& out, const Trial& trial) {
    return out << trial.name;
  }
};

using Replica = std::unique_ptr<DistributedDataParallel>;
using Pointer = std::unique_ptr<torch::optim::Optimizer>;

ShardOptions parameters_in(std::vector<std::string> units) {
  ShardOptions options;
  options.shard = Shard::parameters;
  options.units = std::move(units);
  return options;
}

std::vector<std::pair<std::string, ShardOptions>> strategies() {
  ShardOptions gradients;
  gradients.shard = Shard::gradients;
  gradients.data_parallel.buckets = {40, 300};
  auto keep = parameters_in({"blocks.*", "spare"});
  keep.reshard_after_forward = false;
  return {{"gradients", gradients},
          {"parameters", parameters_in({"blocks.*", "spare"})},
          {"nested", parameters_in({"blocks.1", "spare"})},
          {"keep", keep}};
}

Values train(const Trial& trial, int ranks, const ShardOptions* shards) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    trial.change(*net);
    Replica replica;
    Pointer optimizer = std::make_unique<optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0.1));
    if (shards == nullptr) {
      replica = std::make_unique<DistributedDataParallel>(
          *net, group, DataParallelOptions{.allow_unused = trial.allow_unused});
    } else {
      auto options = *shards;
      options.data_parallel.allow_unused = trial.allow_unused;
      auto sharded = std::make_unique<ShardedDataParallel>(*net, group, options);
      optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), *sharded);
      replica = std::move(sharded);
    }
    for (int i = 0; i < kSteps; ++i) {
      auto step = replica->begin_step(trial.micro_batches);
      for (int micro = 0; micro < trial.micro_batches; ++micro) {
        const int batch = (i * trial.micro_batches + micro) * group.size() + group.rank();
        const auto scores = net->forward(numbers_of(batch), trial.uses_spare(group.rank(), i));
        step.backward(loss_of_tower(scores, batch));
      }
      step.apply(*optimizer);
    }
    const auto whole =
        shards == nullptr
            ? nullptr
            : std::make_unique<WholeParameters>(dynamic_cast<ShardedDataParallel&>(*replica));
    if (group.rank() == 0) values = values_of(*net);
  });
  return values;
}

class ShardedTraining : public testing::TestWithParam<Trial> {};

TEST_P(ShardedTraining, HasTheBitsOfDataParallelism) {
  torch::set_num_threads(1);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto expected = train(GetParam(), ranks, nullptr);
    for (const auto& [name, options] : strategies()) {
      SCOPED_TRACE(name + " with " + std::to_string(ranks) + " ranks");
      const auto values = train(GetParam(), ranks, &options);
      ASSERT_EQ(values.size(), expected.size());
      for (const auto& [parameter, value] : expected) {
        if (GetParam().micro_batches == 1) {
          EXPECT_TRUE(torch::equal(values.at(parameter), value)) << parameter;
        } else {
          EXPECT_TRUE(torch::allclose(values.at(parameter), value, 1e-4, 1e-5)) << parameter;
        }
      }
    }
  }
}

std::vector<Trial> trials() {
  const auto only_even = [](int rank, int) { return rank % 2 == 0; };
  const auto in_odd_steps = [](int, int step) { return step % 2 == 1; };
  return {
      {.name = "plain"},
      {.name = "called_twice",
       .change =
           [](TowerImpl& net) {
             net.calls = {0, 1, 1, 2, 0};
           }},
      {.name = "recomputed", .change = [](TowerImpl& net) { net.recompute = true; }},
      {.name = "frozen_block",
       .change =
           [](TowerImpl& net) {
             for (auto& p : net.blocks[1]->parameters()) p.requires_grad_(false);
           }},
      {.name = "partly_frozen",
       .change =
           [](TowerImpl& net) {
             net.tokens->weight.requires_grad_(false);
             net.blocks->ptr<BlockImpl>(0)->expand->weight.requires_grad_(false);
             net.blocks->ptr<BlockImpl>(2)->scale.requires_grad_(false);
           }},
      {.name = "micro_batches", .micro_batches = 3},
      {.name = "unused_on_a_rank", .allow_unused = true, .uses_spare = only_even},
      {.name = "unused_in_steps", .allow_unused = true, .uses_spare = in_odd_steps},
      {.name = "block_of_doubles",
       .change =
           [](TowerImpl& net) {
             net.blocks->ptr<BlockImpl>(1)->scale.set_data(
                 net.blocks->ptr<BlockImpl>(1)->scale.to(torch::kFloat64));
           }},
  };
}

INSTANTIATE_TEST_SUITE_P(Trials, ShardedTraining, testing::ValuesIn(trials()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ddp::test
