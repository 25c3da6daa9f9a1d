// SPDX-License-Identifier: Apache-2.0
// Pieces are divided among stages so that the heaviest one is as light as it can be.
#include "ddp_runtime/pipeline/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "base/errors.h"
#include "tests/unit/error_of.h"

namespace ddp::pipeline::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

double heaviest_stage(const std::vector<double>& costs, const Balance& balance) {
  const auto sums = costs_of_stages(costs, balance);
  return *std::max_element(sums.begin(), sums.end());
}

// Tries all balances.
double least_possible(const std::vector<double>& costs, int stages) {
  if (stages == 1) return heaviest_stage(costs, {static_cast<int>(costs.size())});
  double best = std::numeric_limits<double>::infinity();
  double first = 0;
  for (std::size_t i = 0; i + static_cast<std::size_t>(stages) <= costs.size(); ++i) {
    first += costs[i];
    const std::vector<double> rest(costs.begin() + static_cast<long>(i) + 1, costs.end());
    best = std::min(best, std::max(first, least_possible(rest, stages - 1)));
  }
  return best;
}

TEST(Balance, GivesEachStageTheSameIfItCan) {
  EXPECT_THAT(balanced(std::vector<double>{1, 1, 1, 1, 1, 1}, 3), ElementsAre(2, 2, 2));
  EXPECT_THAT(balanced(std::vector<double>{4, 1, 1, 1, 1, 4}, 3), ElementsAre(1, 4, 1));
  EXPECT_THAT(balanced(std::vector<double>{1, 2, 3}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(balanced(std::vector<double>{0, 0, 5, 0}, 2), ElementsAre(3, 1));
  EXPECT_THAT(balanced(std::vector<double>{1, 1}, 1), ElementsAre(2));
}

TEST(Balance, IsTheBestOfAll) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> costs(1 + random() % 8);
    for (double& cost : costs) cost = static_cast<double>(random() % 10);
    const int stages = 1 + static_cast<int>(random() % costs.size());
    const auto balance = balanced(costs, stages);
    ASSERT_EQ(std::ssize(balance), stages);
    EXPECT_TRUE(std::ranges::all_of(balance, [](int count) { return count >= 1; }));
    EXPECT_EQ(heaviest_stage(costs, balance), least_possible(costs, stages))
        << testing::PrintToString(costs) << " in " << stages;
  }
}

TEST(Balance, IsReadFromNumbers) {
  EXPECT_THAT(parse_balance("3,4,4,3", "--b"), ElementsAre(3, 4, 4, 3));
  EXPECT_THAT(parse_balance("12", "--b"), ElementsAre(12));
  for (const char* text : {"", "time", "1,,2", "1,2,", "-1,2", "1 2", "1e3", "9999999999"}) {
    EXPECT_THAT(error_of([&] { static_cast<void>(parse_balance(text, "--b")); }),
                HasSubstr("--b takes parameters, time, or the number of pieces"))
        << text;
  }
  EXPECT_THAT(error_of([] { static_cast<void>(parse_balance("1,0,2", "--b")); }),
              HasSubstr("leaves stage 1 without pieces"));
}

TEST(Balance, MustFit) {
  EXPECT_NO_THROW(require_fitting({1, 2}, 2, 3));
  const auto error = [](const Balance& balance, int stages, int pieces) {
    return error_of([&] { require_fitting(balance, stages, pieces); });
  };
  EXPECT_THAT(error({1, 2}, 2, 4), HasSubstr("the model has 4 pieces and the pipeline 2 stages"));
  EXPECT_THAT(error({1, 2}, 3, 3), HasSubstr("the model has 3 pieces and the pipeline 3 stages"));
  EXPECT_THAT(error({1, 3}, 2, 3), HasSubstr("has 4 pieces in 2 stages"));
  EXPECT_THAT(error_of([] {
                static_cast<void>(balanced(std::vector<double>{1, 1}, 3));
              }),
              HasSubstr("has 2 pieces, which cannot be divided among 3 stages"));
}

}  // namespace
}  // namespace ddp::pipeline::test
