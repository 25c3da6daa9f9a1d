// SPDX-License-Identifier: Apache-2.0
// Steps of the trainer with a model that has units, with and without shards.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/unit/parallel/sharded/tower.h"
#include "tests/unit/train/rank_steps.h"

namespace ddp::train {

// In host memory.
inline data::Batch batch_of_tower(int rank, std::int64_t number) {
  const auto numbers = [](std::int64_t first) {
    return (torch::arange(5, torch::kInt64) * 7 + 3 * first) % 11;
  };
  return {numbers(4 * number + rank), numbers(4 * number + rank + 1)};
}

inline Objective objective_of(test::Tower& net) {
  return {.forward = [&net](const torch::Tensor& x) { return net->forward(x); }};
}

// The options with these shards, and units if they need some.
inline TrainOptions with_shards(TrainOptions options, Shard shard) {
  options.shard = shard;
  options.units = {"blocks.*", "spare"};
  return options;
}

struct TowerModel {
  test::Tower net = test::seeded([] { return test::Tower(); });
  Objective objective = objective_of(net);
};

// One rank's steps.
struct TowerSteps : TowerModel, RankSteps {
  TowerSteps(comm::Group& group, const TrainOptions& options)
      : RankSteps(group, *net, objective, options, [rank = group.rank()](std::int64_t number) {
          return batch_of_tower(rank, number);
        }) {}

  // Collective. All parameters by name, on the CPU.
  test::Values values() {
    auto* const sharded = dynamic_cast<ShardedDataParallel*>(step->replica());
    if (sharded == nullptr) return test::values_of(*net);
    const WholeParameters whole(*sharded);
    return test::values_of(*net);
  }
};

// What a run of rank 0 ends with.
struct TowerRun {
  test::Values values;
  std::vector<std::string> skipped;
};

// ATen's fused operators of CPUs, which the simulated GPU uses, round the last elements of an array
// in another way than the others, and a part of an array has other last elements.
inline bool are_alike(const torch::Tensor& a, const torch::Tensor& b) {
  return test::on_device() ? torch::allclose(a, b, 1e-6, 1e-7) : torch::equal(a, b);
}

inline void expect_same_run(const TowerRun& run, const TowerRun& expected,
                            const std::string& what) {
  EXPECT_EQ(run.skipped, expected.skipped) << what;
  ASSERT_EQ(run.values.size(), expected.values.size()) << what;
  for (const auto& [name, value] : run.values) {
    EXPECT_TRUE(are_alike(value, expected.values.at(name))) << what << ", " << name;
  }
}

}  // namespace ddp::train
