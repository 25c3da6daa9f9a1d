// SPDX-License-Identifier: Apache-2.0
// Communication hooks, with ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "ddp_runtime/parallel/hooks/power_sgd.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"

namespace ddp {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;

// Large enough for PowerSGD to compress the weight at rank 1 and 2.
constexpr std::int64_t kIn = 12;
constexpr std::int64_t kOut = 10;

// The results of all ranks, on the CPU; gradients[pass][rank] is the gradient of the weight.
struct Run {
  std::vector<std::vector<torch::Tensor>> gradients;
  std::vector<torch::Tensor> biases;  // of the last pass, by rank
  std::size_t bytes = 0;              // in the last pass
};

// The loss is the inner product of the weight and `wanted(pass, rank)`, plus the rank number times
// the sum of the bias. So the gradient of the weight is `wanted(pass, rank)`, and every element of
// the gradient of the bias is the rank number.
using Wanted = std::function<torch::Tensor(int pass, int rank)>;

Run run(int passes, const CommHook& hook, const Wanted& wanted, BucketLimits limits = {}) {
  Run run;
  run.gradients.assign(static_cast<std::size_t>(passes), std::vector<torch::Tensor>(kRanks));
  run.biases.resize(kRanks);
  test::run_ranks(kRanks, [&](comm::Group& group) {
    auto layer = test::on_test_device(torch::nn::Linear(kIn, kOut));
    DistributedDataParallel replica(*layer, group, {.buckets = limits, .hook = hook});
    const auto rank = static_cast<std::size_t>(group.rank());
    for (int pass = 0; pass < passes; ++pass) {
      auto step = replica.begin_step();
      step.backward((layer->weight * test::on_test_device(wanted(pass, group.rank()))).sum() +
                    layer->bias.sum() * static_cast<double>(group.rank()));
      run.gradients[static_cast<std::size_t>(pass)][rank] = layer->weight.grad().cpu().clone();
    }
    run.biases[rank] = layer->bias.grad().cpu().clone();
    if (rank != 0) return;
    for (const auto& span : replica.communication()) run.bytes += span.bytes;
  });
  return run;
}

torch::Tensor seeded(int seed, const std::function<torch::Tensor()>& make) {
  static std::mutex mutex;  // the generator is shared by all threads
  const std::lock_guard lock(mutex);
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return make();
}

torch::Tensor full_rank(int pass, int rank) {
  return seeded(100 * pass + rank, [] { return torch::randn({kOut, kIn}); });
}

torch::Tensor mean_of(const Wanted& wanted, int pass) {
  auto sum = torch::zeros({kOut, kIn});
  for (int rank = 0; rank < kRanks; ++rank) sum += wanted(pass, rank);
  return sum / kRanks;
}

double relative_error(const torch::Tensor& is, const torch::Tensor& should_be) {
  return ((is - should_be).norm() / should_be.norm()).item<double>();
}

void expect_same_bits(const std::vector<torch::Tensor>& of_ranks) {
  for (const auto& one : of_ranks) EXPECT_TRUE(torch::equal(one, of_ranks.front()));
}

constexpr std::size_t kFullBytes = 4 * (kIn * kOut + kOut);

TEST(CommHook, UserHookDeterminesTheGradients) {
  const CommHook doubled = [](GradientBucket& bucket) -> HookTask {
    co_await bucket.all_reduce(bucket.tensor());
    bucket.tensor().mul_(2);
  };
  const auto result = run(2, doubled, full_rank);
  for (const int pass : {0, 1}) {
    EXPECT_LT(relative_error(result.gradients[pass][1], 2 * mean_of(full_rank, pass)), 1e-6);
  }
  EXPECT_EQ(result.bytes, kFullBytes);
}

TEST(CommHook, SeesTheBucketsMembersAndPass) {
  std::mutex mutex;
  std::vector<std::int64_t> passes;
  const CommHook look = [&](GradientBucket& bucket) -> HookTask {
    {
      const std::lock_guard lock(mutex);
      if (bucket.group().rank() == 0) passes.push_back(bucket.pass());
      EXPECT_EQ(bucket.members().size(), 2U);
      EXPECT_THAT(bucket.name(), HasSubstr("bias"));
      for (const auto& member : bucket.members()) {
        const bool weight = member.parameter == 0;
        EXPECT_EQ(member.gradient.sizes(),
                  weight ? torch::IntArrayRef({kOut, kIn}) : torch::IntArrayRef({kOut}));
      }
    }
    co_await bucket.all_reduce(bucket.tensor());
  };
  run(3, look, full_rank);
  EXPECT_EQ(passes, (std::vector<std::int64_t>{0, 1, 2}));
}

// Hooks of several buckets wait in turn. Here each parameter has its own bucket, with two
// collectives.
TEST(CommHook, CanCommunicateSeveralTimesPerBucket) {
  const CommHook twice = [](GradientBucket& bucket) -> HookTask {
    const auto copy = bucket.tensor().clone();
    const auto first = bucket.all_reduce(copy);
    co_await bucket.all_reduce(bucket.tensor());
    co_await first;
    bucket.tensor().add_(copy);
  };
  const auto result = run(2, twice, full_rank, {.first_bytes = 1, .bytes = 1});
  EXPECT_LT(relative_error(result.gradients[1][2], 2 * mean_of(full_rank, 1)), 1e-6);
  EXPECT_EQ(result.bytes, 2 * kFullBytes);
}

TEST(CommHook, ErrorsReachAllRanksWithTheirText) {
  for (const int awaits : {0, 1}) {
    const CommHook fails = [awaits](GradientBucket& bucket) -> HookTask {
      if (awaits > 0) co_await bucket.all_reduce(bucket.tensor());
      if (bucket.group().rank() == 1) throw RuntimeError("thrown by the hook");
      co_await bucket.all_reduce(bucket.tensor());
    };
    EXPECT_THAT(error_of([&] { run(1, fails, full_rank); }), HasSubstr("thrown by the hook"));
  }
}

TEST(CommHook, SixteenBitHooksHalveTheBytesAndApproximateTheAverage) {
  struct Example {
    HookTask (*hook)(GradientBucket&);
    double bound;
  };
  for (const auto& [hook, bound] : {Example{hooks::fp16, 2e-3}, Example{hooks::bf16, 1.5e-2}}) {
    const auto result = run(1, hook, full_rank);
    const double error = relative_error(result.gradients[0][0], mean_of(full_rank, 0));
    EXPECT_LT(error, bound);
    EXPECT_GT(error, 1e-5);  // it must have been rounded
    EXPECT_EQ(result.bytes, kFullBytes / 2);
    expect_same_bits(result.gradients[0]);
  }
}

TEST(CommHook, NoopLeavesEachRankItsShare) {
  const auto result = run(1, hooks::none, full_rank);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_LT(relative_error(result.gradients[0][static_cast<std::size_t>(rank)],
                             full_rank(0, rank) / kRanks),
              1e-6);
  }
  EXPECT_EQ(result.bytes, 0U);
}

// After a division by 16, this gradient would be ten and a half times the smallest value that 16
// bits can represent.
TEST(Fp16, KeepsSmallGradientsOnManyRanks) {
  if (test::on_device()) GTEST_SKIP() << "needs 16 ranks, and the fake device has 4 devices";
  constexpr int kMany = 16;
  test::run_ranks(kMany, [](comm::Group& group) {
    auto layer = test::on_test_device(torch::nn::Linear(kIn, kOut));
    DistributedDataParallel replica(*layer, group, {.buckets = {}, .hook = hooks::fp16});
    auto step = replica.begin_step();
    step.backward(layer->weight.sum() * 1e-5 + layer->bias.sum() * 1000);
    EXPECT_LT(relative_error(layer->weight.grad().cpu(), torch::full({kOut, kIn}, 1e-5)), 0.01);
    EXPECT_LT(relative_error(layer->bias.grad().cpu(), torch::full({kOut}, 1000.0)), 0.01);
  });
}

// The average of [elements] gradients, of which rank r has rows[r], as a hook computes it.
torch::Tensor average_with(const CommHook& hook, const std::vector<torch::Tensor>& rows) {
  std::vector<torch::Tensor> averages(rows.size());
  test::run_ranks(static_cast<int>(rows.size()), [&](comm::Group& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    auto layer = test::on_test_device(
        torch::nn::Linear(torch::nn::LinearOptions(rows[0].numel(), 1).bias(false)));
    DistributedDataParallel replica(*layer, group, {.buckets = {}, .hook = hook});
    auto step = replica.begin_step();
    step.backward((layer->weight * test::on_test_device(rows[rank])).sum());
    averages[rank] = layer->weight.grad().cpu().clone().view({-1});
    if (rank != 0 || test::on_device()) return;
    // The last part of the bucket is filled up.
    const std::size_t parts = (static_cast<std::size_t>(rows[0].numel()) - 1) / rows.size() + 1;
    EXPECT_LE(replica.communication().at(0).bytes, 2 * parts * rows.size());
  });
  expect_same_bits(averages);
  return averages[0];
}

std::vector<torch::Tensor> random_rows(int ranks, std::int64_t elements) {
  std::vector<torch::Tensor> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back(seeded(rank, [&] { return torch::randn({elements}) + 1; }));
  }
  return rows;
}

torch::Tensor exact_average(const std::vector<torch::Tensor>& rows) {
  return torch::stack(rows).to(torch::kFloat64).mean(0);
}

class SumInFp32 : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (test::on_device() && GetParam() > 4) GTEST_SKIP() << "the fake device has 4 devices";
  }
};

// Each gradient is rounded to bf16, and so is their average: both by at most 1 / 256.
TEST_P(SumInFp32, IsRoundedTwiceOnAnyNumberOfRanks) {
  for (const std::int64_t elements : {1, 7, 1000}) {
    const auto rows = random_rows(GetParam(), elements);
    const auto exact = exact_average(rows);
    const auto sizes = torch::stack(rows).to(torch::kFloat64).abs().mean(0);
    const auto error = (average_with(hooks::bf16_summed_in_fp32, rows) - exact).abs();
    EXPECT_TRUE((error <= 1.01 * (sizes + exact.abs()) / 256).all().item<bool>()) << elements;
  }
}

TEST_P(SumInFp32, IsCloserThanASumInBf16) {
  const auto rows = random_rows(GetParam(), 1000);
  const auto exact = exact_average(rows);
  const double in_fp32 = relative_error(average_with(hooks::bf16_summed_in_fp32, rows), exact);
  const double in_bf16 = relative_error(average_with(hooks::bf16, rows), exact);
  RecordProperty("in_fp32", std::to_string(in_fp32));
  RecordProperty("in_bf16", std::to_string(in_bf16));
  EXPECT_LT(in_fp32, GetParam() == 2 ? 1.001 * in_bf16 : 0.9 * in_bf16);
}

// Beside 256, bf16 has no place for a one.
TEST_P(SumInFp32, KeepsSmallContributionsBesideALargeOne) {
  auto rows = std::vector<torch::Tensor>(static_cast<std::size_t>(GetParam()), torch::ones({50}));
  rows[0] = torch::full({50}, 256.0);
  EXPECT_LT(relative_error(average_with(hooks::bf16_summed_in_fp32, rows), exact_average(rows)),
            1.01 / 256);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SumInFp32, testing::Values(2, 3, 4, 8, 16));

CommHook power_sgd(const hooks::PowerSgdOptions& options, int ranks = kRanks) {
  auto states = std::make_shared<std::vector<hooks::PowerSgd>>();
  for (int rank = 0; rank < ranks; ++rank) states->emplace_back(options);
  return [states](GradientBucket& bucket) {
    return (*states)[static_cast<std::size_t>(bucket.group().rank())].reduce(bucket);
  };
}

// A column times a row. All ranks use the same column, so their average has rank one, too.
torch::Tensor rank_one(int pass, int rank) {
  const auto column = seeded(pass, [] { return torch::randn({kOut, 1}); });
  return column.mm(seeded(50 + rank, [] { return torch::randn({1, kIn}); }));
}

TEST(PowerSgd, IsExactForALowRankAverage) {
  const auto result = run(3, power_sgd({.rank = 1, .full_passes = 0}), rank_one);
  for (const int pass : {0, 1, 2}) {
    const auto& of_ranks = result.gradients[static_cast<std::size_t>(pass)];
    expect_same_bits(of_ranks);
    EXPECT_LT(relative_error(of_ranks[0], mean_of(rank_one, pass)), 1e-4);
  }
  EXPECT_EQ(result.bytes,
            4 * (kIn + kOut + kOut + 1));  // P, Q, the bias, and the use count of the weight
}

TEST(PowerSgd, SendsVectorsUncompressed) {
  const auto result = run(2, power_sgd({.rank = 1, .full_passes = 0}), full_rank);
  for (const auto& bias : result.biases) EXPECT_TRUE(torch::allclose(bias, torch::ones({kOut})));
}

TEST(PowerSgd, BeginsWithFullPasses) {
  const auto result = run(3, power_sgd({.rank = 1, .full_passes = 2}), full_rank);
  EXPECT_LT(relative_error(result.gradients[1][0], mean_of(full_rank, 1)), 1e-6);
  EXPECT_GT(relative_error(result.gradients[2][0], mean_of(full_rank, 2)), 0.1);
}

// Compression delays parts of a gradient but loses none. After many passes with the same gradient,
// the sum of the applied gradients differs from the sum of the true ones only by the stored error.
TEST(PowerSgd, KeepsTheUnsentPartAsError) {
  constexpr int kPasses = 60;
  const Wanted constant = [](int, int rank) { return full_rank(0, rank); };
  const auto result = run(kPasses, power_sgd({.rank = 1, .full_passes = 0}), constant);
  auto used = torch::zeros({kOut, kIn});
  for (const auto& of_ranks : result.gradients) used += of_ranks[0];
  EXPECT_GT(relative_error(result.gradients[0][0], mean_of(constant, 0)), 0.3);
  EXPECT_LT(relative_error(used / kPasses, mean_of(constant, 0)), 0.15);
}

TEST(PowerSgd, DoesNotCompressWithoutGain) {
  const auto result = run(1, power_sgd({.rank = 4, .full_passes = 0}), full_rank);
  EXPECT_LT(relative_error(result.gradients[0][0], mean_of(full_rank, 0)), 1e-6);
  EXPECT_EQ(result.bytes, kFullBytes);
}

// A pass, with the properties that affect PowerSGD.
struct Pass {
  int gradient = 0;  // argument of full_rank()
  double loss_scale = 1;
  bool poisoned = false;  // one value of rank 0's gradient is infinite
  bool used = true;       // by any rank
};

// Returns the gradient of the weight on rank 0 for each pass, divided by the loss scale; zeros if
// there was no gradient.
std::vector<torch::Tensor> remembered(const std::vector<Pass>& passes) {
  std::vector<torch::Tensor> gradients(passes.size());
  const auto hook = power_sgd({.rank = 1, .full_passes = 0});
  test::run_ranks(kRanks, [&](comm::Group& group) {
    auto layer = test::on_test_device(torch::nn::Linear(kIn, kOut));
    DistributedDataParallel replica(
        *layer, group, {.buckets = {}, .allow_unused = true, .check_loss = false, .hook = hook});
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const Pass& pass = passes[i];
      auto wanted = full_rank(pass.gradient, group.rank());
      if (pass.poisoned && group.rank() == 0) {
        wanted[1][2] = std::numeric_limits<float>::infinity();
      }
      auto loss = layer->bias.sum();
      if (pass.used) loss = loss + (layer->weight * test::on_test_device(wanted)).sum();
      replica.set_loss_scale(pass.loss_scale);
      auto step = replica.begin_step();
      step.backward(loss * pass.loss_scale);
      const auto& gradient = layer->weight.grad();
      EXPECT_EQ(gradient.defined(), pass.used);
      EXPECT_EQ(!gradient.defined() || gradient.isfinite().all().item<bool>(), !pass.poisoned)
          << "every rank must see it and skip the step";
      if (group.rank() != 0) continue;
      gradients[i] =
          gradient.defined() ? gradient.cpu() / pass.loss_scale : torch::zeros({kOut, kIn});
    }
  });
  return gradients;
}

TEST(PowerSgd, IgnoresAStepWhoseGradientsAreNotFinite) {
  const auto without = remembered({{0}, {1}, {2}});
  const auto with = remembered({{0}, {7, 1, true}, {1}, {2}});
  EXPECT_TRUE(torch::equal(with[0], without[0]));
  EXPECT_TRUE(torch::equal(with[2], without[1]));
  EXPECT_TRUE(torch::equal(with[3], without[2]));
}

TEST(PowerSgd, KeepsItsErrorUntilTheParameterIsUsedAgain) {
  const auto without = remembered({{0}, {1}, {2}});
  const auto with = remembered({{0}, {0, 1, false, false}, {1}, {0, 1, false, false}, {2}});
  EXPECT_TRUE(torch::equal(with[2], without[1]));
  EXPECT_TRUE(torch::equal(with[4], without[2]));
}

TEST(PowerSgd, KeepsItsErrorWithoutTheLossScale) {
  const auto plain = remembered({{0}, {1}, {2}, {3}});
  const auto scaled = remembered({{0, 65536}, {1, 65536}, {2, 32768}, {3, 0.5}});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(scaled[i], plain[i], 1e-5, 1e-6)) << i;
  }
}

TEST(CommHook, IsFoundByItsName) {
  for (const char* name : {"", "off"}) EXPECT_FALSE(hooks::by_name(name));
  for (const char* name :
       {"fp16", "bf16", "bf16-fp32", "noop", "powersgd", "powersgd:1", "powersgd:64"}) {
    EXPECT_TRUE(hooks::by_name(name)) << name;
  }
  for (const char* name : {"fp8", "powersgd:", "powersgd:0", "powersgd:65", "powersgd:2x", "BF16",
                           "powersgd:99999999999"}) {
    EXPECT_THROW(hooks::by_name(name), UsageError) << name;
  }
}

}  // namespace
}  // namespace ddp
