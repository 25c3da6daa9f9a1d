// SPDX-License-Identifier: Apache-2.0
// Steps of the trainer with a model that has units, with and without shards.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/train/training_step.h"
#include "tests/unit/parallel/tower.h"

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

// One rank's steps.
class TowerSteps {
 public:
  TowerSteps(comm::Group& group, const TrainOptions& options)
      : net(test::seeded([] { return test::Tower(); })),
        objective_(objective_of(net)),
        batches_(
            1000, [rank = group.rank()](std::int64_t i) { return batch_of_tower(rank, i); }, 1, 1),
        step(make_training_step(group, *net, objective_, options, recorder_)) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step->run(batches_, 0.1, ++made);
      note();
    }
  }
  void settle() {
    step->settle();
    note();
  }
  // Collective. All parameters by name, on the CPU.
  test::Values values() {
    auto* const sharded = dynamic_cast<ShardedDataParallel*>(step->replica());
    if (sharded == nullptr) return test::values_of(*net);
    const WholeParameters whole(*sharded);
    return test::values_of(*net);
  }

  test::Tower net;
  std::vector<std::string> skipped;  // "step 2: the reason"
  std::int64_t made = 0;

 private:
  void note() {
    for (const auto& update : step->take_skipped()) {
      skipped.push_back("step " + std::to_string(update.step) + ": " + update.why);
    }
  }

  Objective objective_;
  profile::StepRecorder recorder_;
  data::Prefetcher batches_;

 public:
  std::unique_ptr<TrainingStep> step;  // ends before what it uses
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
