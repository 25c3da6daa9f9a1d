// SPDX-License-Identifier: Apache-2.0
// A torch::nn::Sequential in stages computes the same, with the same modules.
#include "ddp_runtime/pipeline/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "tests/unit/error_of.h"

namespace ddp::pipeline::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

torch::nn::Sequential layers() {
  return torch::nn::Sequential(torch::nn::Linear(4, 64), torch::nn::Functional(torch::relu),
                               torch::nn::Linear(64, 64), torch::nn::Functional(torch::relu),
                               torch::nn::Linear(64, 2));
}

std::vector<std::string> names_in(const Stage& stage) {
  return stage.module->named_parameters().keys();
}

TEST(CutSequential, ComputesTheSame) {
  auto model = layers();
  const auto input = torch::randn({3, 4});
  const auto expected = model->forward(input);
  for (const auto& balance : std::vector<Balance>{{5}, {2, 3}, {1, 1, 1, 1, 1}}) {
    const auto stages = cut(model, balance);
    ASSERT_EQ(stages.size(), balance.size());
    auto x = input;
    for (const auto& stage : stages) x = stage.forward(x);
    EXPECT_TRUE(torch::equal(x, expected));
  }
}

TEST(CutSequential, KeepsNamesAndBalancesParameters) {
  auto model = layers();
  const auto stages = cut(model, 3);  // 320, 4160 and 130 parameters
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_THAT(names_in(stages[0]), ElementsAre("0.weight", "0.bias"));
  EXPECT_THAT(names_in(stages[1]), ElementsAre("2.weight", "2.bias"));
  EXPECT_THAT(names_in(stages[2]), ElementsAre("4.weight", "4.bias"));
  EXPECT_TRUE(stages[1].module->parameters()[0].is_same(model->parameters()[2]));
}

TEST(CutSequential, RefusesABalanceThatDoesNotFit) {
  auto model = layers();
  EXPECT_THAT(error_of([&] {
                static_cast<void>(cut(model, Balance{2, 2}));
              }),
              HasSubstr("the balance 2,2 has 4 pieces in 2 stages, but the model has 5 pieces"));
  EXPECT_THAT(error_of([&] { static_cast<void>(cut(model, 6)); }),
              HasSubstr("cannot be divided among 6 stages"));
}

}  // namespace
}  // namespace ddp::pipeline::test
