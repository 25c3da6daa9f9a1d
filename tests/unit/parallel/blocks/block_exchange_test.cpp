// SPDX-License-Identifier: Apache-2.0
// Gradients whose bits do not depend on the number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

DataParallelOptions ordered(DataParallelOptions options = {}) {
  options.ordered_blocks = true;
  return options;
}

// Numbers whose sums depend on the order in which they are added.
torch::Tensor block_input(std::int64_t block) {
  return on_test_device(torch::arange(8, torch::kFloat32).view({2, 4}).sin() * 1.7 + 0.1 * block);
}

// The gradients of a second step on `ranks` ranks, with all `blocks` blocks in a row.
Values gradients_on(int ranks, std::int64_t blocks, const DataParallelOptions& options,
                    const std::string& used = "abc") {
  Values gradients;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, options);
    const auto each = blocks / ranks;
    for (int repeat = 0; repeat < 2; ++repeat) {
      auto step = replica.begin_step(static_cast<int>(each));
      for (std::int64_t i = 0; i < each; ++i) {
        step.backward(loss_of(net->forward(block_input(group.rank() * each + i), used)));
      }
    }
    const auto mine = gradients_of(*net);
    if (group.rank() == 0) gradients = mine;
    group.barrier().wait();
  });
  return gradients;
}

void expect_same_bits(const Values& a, const Values& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, value] : a) EXPECT_TRUE(torch::equal(value, b.at(name))) << what << name;
}

TEST(OrderedBlocks, HaveTheSameBitsOnAnyNumberOfRanks) {
  for (const std::int64_t blocks : {1, 4, 6, 7, 12}) {
    for (const auto& options : {ordered(), ordered(small_buckets())}) {
      const auto expected = gradients_on(1, blocks, options);
      for (const int ranks : {2, 3, 4, 6}) {
        if (blocks % ranks != 0 || (test::on_device() && ranks > 4)) continue;
        expect_same_bits(
            gradients_on(ranks, blocks, options), expected,
            std::to_string(blocks) + " blocks on " + std::to_string(ranks) + " ranks ");
      }
    }
  }
}

// Otherwise the test above would not show anything.
TEST(OrderedBlocks, DifferFromSumsInOrderOfRanks) {
  bool same = true;
  const auto one = gradients_on(1, 12, {});
  for (const auto& [name, value] : gradients_on(4, 12, {})) {
    same = same && torch::equal(value, one.at(name));
    EXPECT_TRUE(torch::allclose(value, one.at(name), 1e-4, 1e-6)) << name;
  }
  EXPECT_FALSE(same) << "these blocks do not show the order of sums";
}

TEST(OrderedBlocks, AverageLikeTheDefault) {
  expect_close(gradients_on(3, 6, ordered()), gradients_on(3, 6, {}));
}

TEST(OrderedBlocks, UnusedParametersStayWithoutGradient) {
  auto options = ordered();
  options.allow_unused = true;
  const auto gradients = gradients_on(2, 4, options, "ac");
  EXPECT_EQ(gradients.size(), 4U);
  EXPECT_FALSE(gradients.contains("b.weight"));
}

TEST(OrderedBlocks, AMissingGradientIsAnErrorOnOneRankToo) {
  for (const int ranks : {1, 2}) {
    EXPECT_THAT(error_of([&] { gradients_on(ranks, 2, ordered(), "ab"); }),
                HasSubstr("no gradient for 2 of 6 parameters (c.weight, c.bias)"))
        << ranks;
  }
}

TEST(OrderedBlocks, RefuseWhatChangesTheSums) {
  test::run_ranks(1, [](comm::Group& group) {
    auto net = make_branches();
    auto options = ordered();
    options.reduce_type = torch::kBFloat16;
    EXPECT_THAT(error_of([&] { DistributedDataParallel(*net, group, options); }),
                HasSubstr("do not go together with a reduce type; leave out one of them"));
    options = ordered();
    options.hook = hooks::bf16;
    EXPECT_THAT(error_of([&] { DistributedDataParallel(*net, group, options); }),
                HasSubstr("do not go together with a communication hook"));
  });
}

}  // namespace
}  // namespace ddp::test
