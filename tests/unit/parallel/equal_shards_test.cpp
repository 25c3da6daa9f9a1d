// SPDX-License-Identifier: Apache-2.0
// Shards of one size, as NCCL's collectives want them: see Note [Equal shards] in shard_plan.h.
// The sizes of other tests are too small for them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ddp_runtime/parallel/sharded/flat_shard.h"
#include "tests/unit/parallel/tower.h"

namespace ddp::test {
namespace {

constexpr std::int64_t kLayerWidth = 64;
constexpr int kLayers = 3;

struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < kLayers; ++i) {
      layers->push_back(torch::nn::Linear(kLayerWidth, kLayerWidth));
    }
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (std::size_t i = 0; i < layers->size(); ++i) {
      x = torch::tanh(unit(layers->ptr<torch::nn::LinearImpl>(i))(x));
    }
    return x;
  }
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Stack);

Stack make_stack() {
  return seeded([] { return Stack(); });
}

torch::Tensor stack_loss(Stack& net, int batch) {
  const auto x = torch::arange(2 * kLayerWidth, torch::kFloat32).view({2, kLayerWidth});
  return net->forward(on_test_device((x * (batch + 1) * 0.01F).sin())).square().mean();
}

// The values after two steps, of two micro-batches each.
std::vector<torch::Tensor> trained_stack(comm::Group& group, const ShardOptions* options) {
  auto net = make_stack();
  const auto replica = options == nullptr
                           ? std::make_unique<DistributedDataParallel>(*net, group)
                           : std::make_unique<ShardedDataParallel>(*net, group, *options);
  std::unique_ptr<torch::optim::Optimizer> optimizer = std::make_unique<torch::optim::SGD>(
      net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto* const divided = dynamic_cast<ShardedDataParallel*>(replica.get());
  if (divided != nullptr) {
    optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), *divided);
  }
  for (int i = 0; i < 2; ++i) {
    auto step = replica->begin_step(2);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      step.backward(stack_loss(net, 4 * i + 2 * micro_batch + group.rank()));
    }
    step.apply(*optimizer);
  }
  std::vector<torch::Tensor> values;
  const auto keep = [&] {
    for (const auto& p : net->parameters()) values.push_back(p.detach().cpu().clone());
  };
  if (divided == nullptr) {
    keep();
    return values;
  }
  const WholeParameters whole(*divided);
  keep();
  return values;
}

TEST(EqualParts, AreTakenOnDevices) {
  run_ranks(4, [](comm::Group& group) {
    auto net = make_stack();
    const FlatShard flat(group, net->layers[0]->parameters(), FlatShard::Kept::part);
    EXPECT_EQ(flat.has_equal_parts(), on_device());
    if (on_device()) {
      EXPECT_EQ(flat.elements_of_mine() * 4, flat.elements());
    }
  });
}

TEST(EqualParts, TrainAsWithoutShards) {
  for (const auto shard : {Shard::gradients, Shard::parameters, Shard::hybrid}) {
    auto options = parameters_in({"layers.*"});
    options.shard = shard;
    if (shard == Shard::gradients) options.units.clear();
    run_ranks(4, [&](comm::Group& group) {
      const auto expected = trained_stack(group, nullptr);
      const auto values = trained_stack(group, &options);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT((values[i] - expected[i]).abs().max().item<float>(), 1e-6F);
      }
    });
  }
}

}  // namespace
}  // namespace ddp::test
