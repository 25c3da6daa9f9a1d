// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/self_check.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <thread>
#include <vector>

#include "pair_of_optimizers.h"

namespace ddp::optim {
namespace {

constexpr std::array kRules{Rule::sgd, Rule::adam, Rule::adamw};

// Rules that differ from the first ones in the last bit of one element of the parameter.
void slightly_wrong_sgd(const SgdUpdate& update, const SgdArrays& arrays, std::size_t count) {
  update_rules()[0].sgd(update, arrays, count);
  const std::size_t last = count - 1;
  arrays.parameter[last] = std::nextafter(arrays.parameter[last], 10.0F);
}
void slightly_wrong_adam(const AdamUpdate& update, const AdamArrays& arrays, std::size_t count) {
  update_rules()[0].adam(update, arrays, count);
  arrays.square_average[0] = std::nextafter(arrays.square_average[0], 10.0F);
}
constexpr UpdateRules kWrong{"wrong", Rounding::fused, slightly_wrong_sgd, slightly_wrong_adam};

TEST(SelfCheck, RefusesRulesThatDifferInOneBit) {
  for (const Rule rule : kRules) EXPECT_FALSE(equals_libtorch(rule, kWrong));
}

TEST(SelfCheck, RefusesAllOtherRoundings) {
  for (const Rule rule : kRules) {
    int equal = 0;
    for (const auto& rules : update_rules()) equal += equals_libtorch(rule, rules) ? 1 : 0;
    // SGD does not use the operator in which the first two roundings differ.
    EXPECT_LE(equal, rule == Rule::sgd ? 2 : 1);
  }
}

TEST(SelfCheck, SkipsWrongCandidates) {
  std::vector<UpdateRules> some{kWrong};
  EXPECT_EQ(first_equal(Rule::sgd, some), nullptr);
  EXPECT_EQ(first_equal(Rule::adamw, {}), nullptr);
  const auto right = candidates();
  some.insert(some.end(), right.begin(), right.end());
  for (const Rule rule : kRules) {
    const auto* chosen = first_equal(rule, some);
    ASSERT_EQ(chosen != nullptr, one_pass_in_use(rule));
    if (chosen != nullptr) {
      EXPECT_EQ(chosen->rounding, rules_in_use(rule)->rounding);
    }
  }
}

// The one pass must not be lost by accident where it is known to be possible.
TEST(SelfCheck, FindsTheRulesOfLibtorch) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "known for x86-64";
#endif
  for (const Rule rule : kRules) EXPECT_TRUE(one_pass_in_use(rule));
}

TEST(SelfCheck, LeavesTheUsersRandomNumbers) {
  torch::manual_seed(5);
  const auto expected = torch::rand({4});
  torch::manual_seed(5);
  for (const Rule rule : kRules) equals_libtorch(rule, update_rules()[0]);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(SelfCheck, DoesNotDependOnTheModesOfTheThread) {
  for (const Rule rule : kRules) {
    const bool expected = equals_libtorch(rule, update_rules()[0]);
    const auto type = torch::get_default_dtype();
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    EXPECT_EQ(equals_libtorch(rule, update_rules()[0]), expected);
    torch::set_default_dtype(type);
    const c10::InferenceMode inference;
    EXPECT_EQ(equals_libtorch(rule, update_rules()[0]), expected);
  }
}

TEST(SelfCheck, AllThreadsGetTheSameRules) {
  std::array<const UpdateRules*, 4> found{};
  std::vector<std::thread> threads;
  for (auto& slot : found) threads.emplace_back([&slot] { slot = rules_in_use(Rule::adamw); });
  for (auto& thread : threads) thread.join();
  for (const auto* rules : found) EXPECT_EQ(rules, rules_in_use(Rule::adamw));
}

}  // namespace
}  // namespace ddp::optim
