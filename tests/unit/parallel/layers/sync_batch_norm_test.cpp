// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: compares normalization over parts of a batch with torch's BatchNorm on the
// whole batch.
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>

#include "base/errors.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/layers/batch_statistics.h"
#include "tests/unit/error_of.h"
#include "tests/unit/parallel/branches.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kChannels = 3;

// Values that are all different, but the same in every call. All threads share one generator.
torch::Tensor values(const std::vector<std::int64_t>& shape, double frequency,
                     torch::ScalarType type = torch::kFloat64) {
  auto count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const auto angles = torch::arange(count, torch::kFloat64) * frequency + 0.5;
  return test::on_test_device(torch::sin(angles).view(shape).to(type));
}

void initialize(torch::nn::Module& norm) {
  const torch::NoGradGuard no_grad;
  for (auto& p : norm.parameters()) p.copy_(values(p.sizes().vec(), 1.7) + 1.5);
}

// The result of one forward and backward.
struct Result {
  torch::Tensor output;
  torch::Tensor of_input;
  torch::Tensor of_weight;
  torch::Tensor of_bias;
};

template <class Norm>
Result run(Norm& norm, const torch::Tensor& input, const torch::Tensor& gradient) {
  auto x = input.detach().clone().requires_grad_();
  norm->zero_grad();
  auto y = norm->forward(x);
  y.backward(gradient);
  return {y.detach(), x.grad(), norm->weight.grad().clone(), norm->bias.grad().clone()};
}

torch::Tensor sum_over_ranks(comm::Group& group, const torch::Tensor& mine) {
  auto sum = mine.to(torch::kFloat64).cpu().contiguous().clone();
  group
      .all_reduce({static_cast<std::byte*>(sum.data_ptr()), static_cast<std::size_t>(sum.numel()),
                   comm::ElementType::f64},
                  comm::ReduceOp::sum)
      .wait();
  return sum;
}

void expect_close(const torch::Tensor& a, const torch::Tensor& b, double tolerance) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const auto doubles = [](const torch::Tensor& t) { return t.detach().cpu().to(torch::kFloat64); };
  EXPECT_TRUE(torch::allclose(doubles(a), doubles(b), tolerance, tolerance)) << a << "\n and \n"
                                                                             << b;
}

struct SplitCase {
  const char* name;
  std::vector<std::int64_t> samples;  // of each rank
  std::vector<std::int64_t> extent;   // dimensions after samples and channels
};

class SyncBatchNormSplit : public testing::TestWithParam<SplitCase> {
 protected:
  torch::Tensor batch(double frequency, torch::ScalarType type) const {
    const auto& c = GetParam();
    std::vector<std::int64_t> shape{
        std::accumulate(c.samples.begin(), c.samples.end(), std::int64_t{0}), kChannels};
    shape.insert(shape.end(), c.extent.begin(), c.extent.end());
    return 2 * values(shape, frequency, type) + 0.3;
  }
  torch::Tensor part(const torch::Tensor& whole, int rank) const {
    const auto& samples = GetParam().samples;
    const auto begin = std::accumulate(samples.begin(), samples.begin() + rank, std::int64_t{0});
    return whole.narrow(0, begin, samples[static_cast<std::size_t>(rank)]);
  }

  void check(torch::ScalarType type, double tolerance, torch::nn::BatchNormOptions options) const {
    const int ranks = static_cast<int>(GetParam().samples.size());
    test::run_ranks(ranks, [&](comm::Group& group) {
      auto reference = test::on_test_device(torch::nn::BatchNorm2d(options));
      auto norm = test::on_test_device(SyncBatchNorm(options, group));
      // BatchNorm2d requires four dimensions; the computation is the same for all.
      const auto as_image = [](const torch::Tensor& t) {
        return t.reshape({t.size(0), t.size(1), -1, 1});
      };
      for (auto* module : {static_cast<torch::nn::Module*>(reference.get()),
                           static_cast<torch::nn::Module*>(norm.get())}) {
        module->to(type);
        initialize(*module);
      }
      for (int step = 0; step < 3; ++step) {
        const auto x = batch(0.7 + step, type);
        const auto dy = batch(1.9 + step, type);
        auto whole = run(reference, as_image(x), as_image(dy));
        const auto mine = run(norm, part(x, group.rank()), part(dy, group.rank()));
        expect_close(mine.output, part(whole.output.view(x.sizes()), group.rank()), tolerance);
        expect_close(mine.of_input, part(whole.of_input.view(x.sizes()), group.rank()), tolerance);
        expect_close(sum_over_ranks(group, mine.of_weight), whole.of_weight, 10 * tolerance);
        expect_close(sum_over_ranks(group, mine.of_bias), whole.of_bias, 10 * tolerance);
        expect_close(norm->running_mean, reference->running_mean, tolerance);
        expect_close(norm->running_var, reference->running_var, tolerance);
      }
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 3);
    });
  }
};

TEST_P(SyncBatchNormSplit, EqualsBatchNormOnTheWholeBatch) {
  check(torch::kFloat64, 1e-10, torch::nn::BatchNormOptions(kChannels));
  check(torch::kFloat32, 2e-5, torch::nn::BatchNormOptions(kChannels));
}

TEST_P(SyncBatchNormSplit, AveragesItsStatisticsOverAllBatchesWithoutAMomentum) {
  check(torch::kFloat64, 1e-10, torch::nn::BatchNormOptions(kChannels).momentum(c10::nullopt));
}

INSTANTIATE_TEST_SUITE_P(Parts, SyncBatchNormSplit,
                         testing::Values(SplitCase{"OneRank", {4}, {}},
                                         SplitCase{"TwoRanks", {4, 4}, {}},
                                         SplitCase{"TwoRanksUneven", {5, 2}, {3, 2}},
                                         SplitCase{"OneSampleEach", {1, 1, 1}, {}},
                                         SplitCase{"ThreeRanksUneven", {2, 1, 4}, {5}},
                                         SplitCase{"FourRanksOneEmpty", {2, 0, 3, 1}, {2, 2}},
                                         SplitCase{"FourRanksVolumes", {2, 2, 2, 2}, {2, 2, 2}}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

// dL/dx by finite differences. L sums a function of all ranks' outputs, so every sample of every
// rank affects every rank's loss.
TEST(SyncBatchNorm, GradientsMatchFiniteDifferencesOfTheTotalLoss) {
  test::run_ranks(2, [](comm::Group& group) {
    auto norm = test::on_test_device(
        SyncBatchNorm(torch::nn::BatchNormOptions(2).track_running_stats(false), group));
    norm->to(torch::kFloat64);
    initialize(*norm);
    const auto all = values({2, 3, 2}, 0.9);  // ranks, samples, channels
    const auto weights = values({2, 3, 2}, 2.3)[group.rank()];
    const auto loss_at = [&](const torch::Tensor& x) {
      return (norm->forward(x).pow(3) * weights).sum();
    };
    auto x = all[group.rank()].clone().requires_grad_();
    loss_at(x).backward();
    constexpr double kStep = 1e-5;
    const torch::NoGradGuard no_grad;
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      double difference = 0;
      for (const double sign : {1.0, -1.0}) {
        auto moved = all.clone();
        moved.view({-1})[i] += sign * kStep;
        difference += sign * sum_over_ranks(group, loss_at(moved[group.rank()])).item<double>();
      }
      const std::int64_t local = i - group.rank() * x.numel();
      if (local < 0 || local >= x.numel()) continue;  // another rank's sample
      EXPECT_NEAR(x.grad().view({-1})[local].item<double>(), difference / (2 * kStep), 1e-6) << i;
    }
  });
}

TEST(BatchStatistics, StayAccurateIfTheMeanIsLargeComparedWithTheSpread) {
  const auto batch = 1e4 + 0.1 * values({64, kChannels, 5}, 0.7);
  std::vector<torch::Tensor> packed;
  for (const auto& part : batch.to(torch::kFloat32).split(24)) {
    packed.push_back(pack_statistics(part));
  }
  const auto combined = combine_statistics(torch::stack(packed));
  const auto expected =
      batch.to(torch::kFloat32).to(torch::kFloat64).var(at::IntArrayRef{0, 2}, false);
  EXPECT_EQ(combined.count.item<double>(), 64 * 5);
  EXPECT_TRUE(torch::allclose(combined.variance(), expected, 1e-3, 0))
      << combined.variance() << expected;
}

TEST(SyncBatchNorm, HalfPrecisionIsSummedInSinglePrecision) {
  test::run_ranks(2, [](comm::Group& group) {
    auto norm = test::on_test_device(SyncBatchNorm(torch::nn::BatchNormOptions(kChannels), group));
    auto reference = test::on_test_device(torch::nn::BatchNorm1d(kChannels));
    const auto whole = (3 + values({512, kChannels}, 0.7)).to(torch::kBFloat16);
    auto x = whole.chunk(2)[static_cast<std::size_t>(group.rank())].clone().requires_grad_();
    const auto y = norm->forward(x);
    y.sum().backward();
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(x.grad().scalar_type(), torch::kBFloat16);
    EXPECT_EQ(norm->weight.grad().scalar_type(), torch::kFloat32);
    reference->forward(whole.to(torch::kFloat32));
    expect_close(norm->running_mean, reference->running_mean, 1e-6);
    expect_close(norm->running_var, reference->running_var, 1e-6);
  });
}

TEST(SyncBatchNorm, OnlyNormalizesWithoutParameters) {
  test::run_ranks(2, [](comm::Group& group) {
    auto norm = test::on_test_device(
        SyncBatchNorm(torch::nn::BatchNormOptions(kChannels).affine(false), group));
    const auto whole = values({8, kChannels}, 0.7, torch::kFloat32);
    auto x = whole.chunk(2)[static_cast<std::size_t>(group.rank())].clone().requires_grad_();
    const auto y = norm->forward(x);
    y.pow(2).sum().backward();
    EXPECT_TRUE(x.grad().defined());
    expect_close(sum_over_ranks(group, y.detach().sum(0)), torch::zeros({kChannels}), 1e-5);
  });
}

TEST(SyncBatchNorm, DoesNotCommunicateInEvaluation) {
  test::run_ranks(
      2,
      [](comm::Group& group) {
        auto norm =
            test::on_test_device(SyncBatchNorm(torch::nn::BatchNormOptions(kChannels), group));
        norm->forward(values({4, kChannels}, 0.7, torch::kFloat32));
        norm->eval();
        EXPECT_FALSE(communicates_in_forward(*norm));
        if (group.rank() == 1) return;
        const auto x = values({1, kChannels}, 0.9, torch::kFloat32);
        const auto expected = (x - norm->running_mean) / (norm->running_var + 1e-5).sqrt();
        expect_close(norm->forward(x), expected, 1e-6);
      },
      {.limits = {.timeout = 5s}});
}

TEST(SyncBatchNorm, UnconnectedEqualsBatchNormBitwise) {
  auto norm = test::on_test_device(SyncBatchNorm(kChannels));
  auto reference = test::on_test_device(torch::nn::BatchNorm1d(kChannels));
  const auto x = values({5, kChannels}, 0.7, torch::kFloat32);
  const auto dy = values({5, kChannels}, 1.7, torch::kFloat32);
  for (int step = 0; step < 2; ++step) {
    const auto mine = run(norm, x, dy);
    const auto theirs = run(reference, x, dy);
    EXPECT_TRUE(torch::equal(mine.output, theirs.output));
    EXPECT_TRUE(torch::equal(mine.of_input, theirs.of_input));
    EXPECT_TRUE(torch::equal(norm->running_var, reference->running_var));
  }
}

TEST(SyncBatchNorm, HasTheCheckpointNamesOfBatchNorm) {
  const auto names = [](const torch::nn::Module& module) {
    return std::pair(module.named_parameters().keys(), module.named_buffers().keys());
  };
  EXPECT_EQ(names(*SyncBatchNorm(kChannels)), names(*torch::nn::BatchNorm2d(kChannels)));
}

// Has several layers, so that their collectives run between buckets of one parameter each.
struct NormalizedImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(norm_a(conv_a(x)));
    x = torch::tanh(norm_b(conv_b(x)));
    return head(x.mean({2, 3}));
  }
  torch::nn::Conv2d conv_a{register_module("conv_a", torch::nn::Conv2d(2, 4, 3))};
  SyncBatchNorm norm_a{register_module("norm_a", SyncBatchNorm(4))};
  torch::nn::Conv2d conv_b{register_module("conv_b", torch::nn::Conv2d(4, 3, 2))};
  SyncBatchNorm norm_b{register_module("norm_b", SyncBatchNorm(3))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(3, 2))};
};
TORCH_MODULE(Normalized);

Normalized make_normalized() {
  auto net = test::on_test_device(Normalized());
  const torch::NoGradGuard no_grad;
  double frequency = 0.3;
  for (auto& p : net->parameters()) {
    p.copy_(0.5 * values(p.sizes().vec(), frequency += 0.4) + (p.dim() == 1 ? 0.5 : 0));
  }
  return net;
}

// Parameters and buffers after four steps.
std::vector<torch::Tensor> trained(int ranks, int micro_batches, DataParallelOptions options) {
  std::vector<torch::Tensor> result;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = make_normalized();
    connect_sync_batch_norm(*net, group);
    DistributedDataParallel replica(*net, group, options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int s = 0; s < 4; ++s) {
      auto step = replica.begin_step(micro_batches);
      for (int m = 0; m < micro_batches; ++m) {
        const auto whole = values({12, 2, 6, 6}, 0.31 + 0.1 * s + m, torch::kFloat32);
        const auto mine = whole.chunk(ranks)[static_cast<std::size_t>(group.rank())];
        step.backward(net->forward(mine).pow(2).mean());
      }
      step.apply(optimizer);
    }
    if (group.rank() != 0) return;
    result = test::on_cpu(net->parameters());
    for (const auto& b : test::on_cpu(net->buffers())) result.push_back(b);
  });
  return result;
}

TEST(SyncBatchNorm, RanksLearnTheSameAsOneProcess) {
  torch::set_num_threads(1);
  for (const int micro_batches : {1, 2}) {
    const auto alone = trained(1, micro_batches, {});
    for (const int ranks : {2, 3, 4}) {
      DataParallelOptions options;
      options.buckets = {1, 1};
      options.static_graph = ranks == 3;
      options.allow_unused = ranks == 4;
      const auto together = trained(ranks, micro_batches, options);
      ASSERT_EQ(together.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(torch::allclose(together[i], alone[i], 1e-4, 1e-5))
            << ranks << " ranks, tensor " << i << "\n"
            << together[i] << alone[i];
      }
    }
  }
}

// Has a layer before the normalization that some ranks skip. It is registered last, so its buckets
// are the first. A rank that skips it sends them before backward, and thus before the sums of the
// normalization; the other ranks send them after those.
struct OptionalStartImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, bool with_start) {
    if (with_start) x = start(x);
    return norm(x);
  }
  SyncBatchNorm norm{register_module("norm", SyncBatchNorm(kChannels))};
  torch::nn::Linear start{register_module("start", torch::nn::Linear(kChannels, kChannels))};
};
TORCH_MODULE(OptionalStart);

TEST(SyncBatchNorm, AllowsBucketsToOvertakeItOnSomeRanks) {
  if (test::on_device()) {
    GTEST_SKIP() << "on GPUs, all ranks must call the collectives of all channels in one order";
  }
  const auto loss_of = [&](const torch::Tensor& y) {
    return (y * values({4, kChannels}, 1.1, torch::kFloat32)).pow(2).mean();
  };
  const auto input_of = [](int rank) {
    return values({4, kChannels}, 0.7 + rank, torch::kFloat32);
  };

  auto alone = test::on_test_device(OptionalStart());
  initialize(*alone);
  const auto whole = alone->norm(torch::cat({alone->start(input_of(0)), input_of(1)}));
  ((loss_of(whole.narrow(0, 0, 4)) + loss_of(whole.narrow(0, 4, 4))) / 2).backward();

  test::run_ranks(2,
                  [&](comm::Group& group) {
                    auto net = test::on_test_device(OptionalStart());
                    initialize(*net);
                    connect_sync_batch_norm(*net, group);
                    DataParallelOptions options;
                    options.buckets = {1, 1};
                    options.allow_unused = true;
                    DistributedDataParallel replica(*net, group, options);
                    auto step = replica.begin_step();
                    const int rank = group.rank();
                    step.backward(loss_of(net->forward(input_of(rank), rank == 0)));
                    for (const auto& p : alone->named_parameters()) {
                      expect_close(net->named_parameters()[p.key()].grad(), p.value().grad(), 1e-5);
                    }
                  },
                  {.limits = {.timeout = 5s}});
}

TEST(SyncBatchNorm, OneValuePerChannelIsRefusedOnAllRanks) {
  std::atomic<int> refused{0};
  const auto text = test::error_of_ranks(3, [&](comm::Group& group) {
    auto net = test::on_test_device(Normalized());
    connect_sync_batch_norm(*net, group);
    try {
      net->norm_b->forward(test::on_test_device(torch::ones({group.rank() == 1 ? 1 : 0, 3})));
    } catch (const UsageError&) {
      ++refused;
      group.barrier().wait();  // lets every rank report its error
      throw;
    }
  });
  EXPECT_EQ(text,
            "SyncBatchNorm (norm_b) got too few values per channel, 1 from all 3 ranks together; a "
            "variance needs two; use a larger batch, or eval()");
  EXPECT_EQ(refused, 3);
}

TEST(SyncBatchNorm, WrongShapeIsRefused) {
  auto norm = test::on_test_device(SyncBatchNorm(4));
  for (const auto& input : {torch::ones({4}), torch::ones({2, 5}), torch::ones({4, 2, 4})}) {
    EXPECT_THROW(norm->forward(test::on_test_device(input)), UsageError) << input.sizes();
  }
}

TEST(SyncBatchNorm, LayerThatCannotBeConnectedIsNamed) {
  const auto text = test::error_of_ranks(2, [](comm::Group& group) {
    torch::nn::Sequential net(SyncBatchNorm(4), torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4));
    connect_sync_batch_norm(*net, group);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("layer '2' is a torch::nn::BatchNorm1dImpl"),
                          HasSubstr("declare it as ddp::SyncBatchNorm")));
}

TEST(SyncBatchNorm, RankWithoutDataIsAnErrorNotAHang) {
  const auto text = test::error_of_ranks(3, [](comm::Group& group) {
    auto net = make_normalized();
    connect_sync_batch_norm(*net, group);
    DistributedDataParallel replica(*net, group);
    replica.begin_uneven_step(group.rank() != 1);
  });
  EXPECT_THAT(text, HasSubstr("1 of 3 ranks have no data left, and the model has SyncBatchNorm"));
}

TEST(SyncBatchNorm, ExceptionOnOneRankReleasesTheOthers) {
  for (const bool in_backward : {false, true}) {
    const auto text = test::error_of_ranks(3, [&](comm::Group& group) {
      auto net = make_normalized();
      connect_sync_batch_norm(*net, group);
      DistributedDataParallel replica(*net, group);
      auto step = replica.begin_step();
      if (!in_backward && group.rank() == 1) throw std::runtime_error("bad sample 17");
      const auto output = net->forward(values({4, 2, 6, 6}, 0.3, torch::kFloat32));
      if (in_backward && group.rank() == 1) throw std::runtime_error("bad sample 17");
      step.backward(output.pow(2).mean());
    });
    EXPECT_EQ(text, "bad sample 17");
  }
}

}  // namespace
}  // namespace ddp
