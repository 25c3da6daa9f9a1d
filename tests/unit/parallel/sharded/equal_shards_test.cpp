// SPDX-License-Identifier: Apache-2.0
// Shards of one size, as NCCL's collectives want them: see Note [Equal shards] in shard_plan.h.
// The sizes of other tests are too small for them.
#include <gtest/gtest.h>

#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"
#include "tests/unit/parallel/sharded/strategies.h"

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

torch::Tensor stack_loss(Stack& net, int batch) {
  const auto x = torch::arange(2 * kLayerWidth, torch::kFloat32).view({2, kLayerWidth});
  return net->forward(on_test_device((x * (batch + 1) * 0.01F).sin())).square().mean();
}

// The values after two steps, of two micro-batches each.
Values trained_stack(Strategy strategy) {
  strategy.options.data_parallel.buckets = {};
  const auto body = [](Stack& net, Training& training, comm::Group& group) {
    for (int i = 0; i < 2; ++i) {
      auto step = training.replica->begin_step(2);
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        step.backward(stack_loss(net, 4 * i + 2 * micro_batch + group.rank()));
      }
      step.apply(*training.optimizer);
    }
  };
  return values_after(
      4, strategy, [] { return Stack(); }, body);
}

TEST(EqualParts, AreTakenOnDevices) {
  run_ranks(4, [](comm::Group& group) {
    auto net = seeded([] { return Stack(); });
    const FlatShard flat(group, net->layers[0]->parameters(), FlatShard::Kept::part);
    EXPECT_EQ(flat.has_equal_parts(), on_device());
    if (on_device()) {
      EXPECT_EQ(flat.elements_of_mine() * 4, flat.elements());
    }
  });
}

TEST(EqualParts, TrainAsWithoutShards) {
  const auto expected = trained_stack(without_shards());
  for (const auto* const name : {"gradients", "parameters", "hybrid"}) {
    SCOPED_TRACE(name);
    expect_near(trained_stack(strategy_called(name, {"layers.*"})), expected, 1e-6);
  }
}

}  // namespace
}  // namespace ddp::test
