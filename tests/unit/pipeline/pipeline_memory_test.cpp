// SPDX-License-Identifier: Apache-2.0
// How many micro-batches a rank keeps, counted in memory.
#include <gtest/gtest.h>

#include <mutex>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/buckets/split_backward.h"
#include "tests/unit/parallel/counting_allocator.h"
#include "tests/unit/pipeline/staged_model.h"

namespace ddp::pipeline::test {
namespace {

using ddp::test::run_ranks;

constexpr std::int64_t kSamples = 3;
constexpr std::int64_t kFeatures = 5;

// Backward needs one tensor of `width` numbers per sample that forward has made: the result of the
// first sigmoid(), which is also the input of the second layer. Its gradient is as large.
struct WideImpl : torch::nn::Module {
  explicit WideImpl(std::int64_t width) : expand(kFeatures, width), contract(width, kFeatures) {
    register_module("expand", expand);
    register_module("contract", contract);
  }
  torch::Tensor forward(const torch::Tensor& x) { return contract(expand(x).sigmoid()).sigmoid(); }
  torch::nn::Linear expand;
  SplitLinear contract;
};

// The width of a rank's stages is its own, so that its memory can be told from that of the others.
std::int64_t width_of(int rank) {
  return 211 + 10 * rank;
}

std::size_t bytes_of_one(int rank) {
  return static_cast<std::size_t>(kSamples * width_of(rank)) * sizeof(float);
}

struct KeptCase {
  Schedule schedule;
  Layout layout;
};

std::vector<MicroBatch> numbers(int count) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) {
    const auto x = torch::rand({kSamples, kFeatures});
    batches.push_back({.input = x, .target = x});
  }
  return batches;
}

torch::Tensor distance(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

void train(comm::Group& group, const KeptCase& one, int steps,
           const std::function<void(int)>& after_step = {}) {
  std::vector<Stage> stages(static_cast<std::size_t>(one.layout.stages()));
  for (const int number : own_stages(group, one.layout.stages())) {
    stages[static_cast<std::size_t>(number)] =
        make_stage(std::make_shared<WideImpl>(width_of(group.rank())));
  }
  PipelineOptions options;
  options.schedule = one.schedule;
  options.record_operations = true;
  Pipeline pipe(group, std::move(stages), distance, options);
  torch::optim::SGD optimizer(pipe.parameters(), 0.1);
  for (int i = 0; i < steps; ++i) {
    auto step = pipe.begin_step(one.layout.micro_batches);
    step.backward(numbers(one.layout.micro_batches));
    step.apply(optimizer);
    group.barrier("after a step").wait();
    if (after_step && group.rank() == 0) after_step(i);
    group.barrier("counted").wait();
  }
}

class PipelineMemory : public PipelineTest {
 protected:
  void SetUp() override {
    if (ddp::test::on_device()) GTEST_SKIP() << "counts the memory of CPUs";
    PipelineTest::SetUp();
  }
};

TEST_F(PipelineMemory, HoldsAsManyMicroBatchesAsTheScheduleSays) {
  std::vector<KeptCase> cases;
  for (const auto schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zb_h1}) {
    for (int p = 1; p <= 4; ++p) {
      for (const int m : {1, 2, 4, 8}) cases.push_back({schedule, {p, m}});
    }
  }
  for (const int p : {1, 2, 3, 4}) {
    for (const int m : {p, 2 * p}) cases.push_back({Schedule::interleaved, {p, m, 2}});
  }
  for (const auto& one : cases) {
    const ddp::test::CountingAllocator memory;
    run_ranks(one.layout.ranks, [&](comm::Group& group) { train(group, one, 2); });
    for (int rank = 0; rank < one.layout.ranks; ++rank) {
      // Beside those that are kept, the gradients of one of them, before and after sigmoid().
      EXPECT_EQ(memory.most_of(bytes_of_one(rank)), max_kept(one.schedule, one.layout, rank) + 2)
          << to_string(one.schedule) << " p=" << one.layout.ranks
          << " m=" << one.layout.micro_batches << " rank " << rank;
    }
  }
}

TEST_F(PipelineMemory, DoesNotGrow) {
  for (const auto schedule :
       {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_h1}) {
    const KeptCase one{schedule, {2, 4, schedule == Schedule::interleaved ? 2 : 1}};
    const ddp::test::CountingAllocator memory;
    std::vector<std::size_t> live;
    run_ranks(2, [&](comm::Group& group) {
      train(group, one, 50, [&](int) { live.push_back(memory.live_bytes()); });
    });
    ASSERT_EQ(live.size(), 50U);
    EXPECT_EQ(live[49], live[2]) << to_string(schedule);
  }
}

// Nor with the number of micro-batches: weight gradients are added up at once.
TEST_F(PipelineMemory, OfWeightGradientsDoesNotDependOnTheNumberOfMicroBatches) {
  std::vector<std::size_t> peaks;
  for (const int m : {8, 64}) {
    const ddp::test::CountingAllocator memory;
    run_ranks(2, [&](comm::Group& group) { train(group, {Schedule::zb_h1, {2, m}}, 2); });
    // Weights, gradients and what computes them, of both layers.
    const auto weights = static_cast<std::size_t>(kFeatures * width_of(1)) * sizeof(float);
    peaks.push_back(static_cast<std::size_t>(memory.most_of(weights)));
  }
  EXPECT_EQ(peaks[0], peaks[1]);
}

}  // namespace
}  // namespace ddp::pipeline::test
