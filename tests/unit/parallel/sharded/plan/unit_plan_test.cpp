// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/unit_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/error_of.h"

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kModules = {
    "tokens",       "blocks",        "blocks.0",  "blocks.0.mix",  "blocks.1",
    "blocks.1.mix", "blocks.1.relu", "blocks.10", "blocks.10.mix", "norm"};
const std::vector<ParameterUse> kUses = {{"tokens.weight", 0},        {"blocks.0.mix.weight", 1},
                                         {"blocks.0.scale", 2},       {"blocks.1.mix.weight", 3},
                                         {"blocks.10.mix.weight", 4}, {"norm.weight", 5}};

std::vector<Unit> planned(const std::vector<std::string>& patterns,
                          std::vector<ParameterUse> uses = kUses) {
  return plan_units(kModules, uses, patterns);
}

TEST(UnitPlan, GivesTheRestToTheRoot) {
  const auto units = planned({"blocks.*"});
  ASSERT_EQ(units.size(), 4U);
  EXPECT_EQ(units[0].name, "");
  EXPECT_THAT(units[0].parameters, ElementsAre(0, 5));
  EXPECT_EQ(units[1].name, "blocks.0");
  EXPECT_THAT(units[1].parameters, ElementsAre(1, 2));
  EXPECT_EQ(units[2].name, "blocks.1");
  EXPECT_THAT(units[2].parameters, ElementsAre(3));
  EXPECT_EQ(units[3].name, "blocks.10");
  EXPECT_THAT(units[3].parameters, ElementsAre(4));
}

TEST(UnitPlan, PutsParametersIntoTheInnermostUnit) {
  const auto units = planned({"blocks.0", "*.*.mix", "tokens"});
  std::vector<std::string> names;
  for (const auto& unit : units) names.push_back(unit.name);
  EXPECT_THAT(names, ElementsAre("", "tokens", "blocks.0", "blocks.0.mix", "blocks.1.mix",
                                 "blocks.10.mix"));
  EXPECT_THAT(units[2].parameters, ElementsAre(2));
  EXPECT_THAT(units[3].parameters, ElementsAre(1));
}

TEST(UnitPlan, NamesAPatternWithoutUnits) {
  for (const char* pattern : {"layers.*", "blocks.1.relu", "block", "blocks", ""}) {
    if (std::string(pattern) == "blocks") continue;  // a module with parameters
    EXPECT_THAT(error_of([&] {
                  planned({"blocks.*", pattern});
                }),
                HasSubstr("names no module with parameters"))
        << pattern;
  }
  EXPECT_THAT(
      error_of([&] { planned({"layers.*"}); }),
      HasSubstr("'layers.*' names no module with parameters, so it makes no unit; the model "
                "has: tokens, blocks, blocks.0"));
}

TEST(UnitPlan, SharedParametersStayTogether) {
  auto uses = kUses;
  uses.push_back({"blocks.1.tied", 1});
  EXPECT_EQ(
      error_of([&] { planned({"blocks.*"}, uses); }),
      "the parameter 'blocks.0.mix.weight' of unit 'blocks.0' is also 'blocks.1.tied' of unit "
      "'blocks.1', which would read it while it is not whole; choose units that keep shared "
      "parameters together, or leave them to the root");
  // The root is whole when any unit computes, wherever the name of the parameter comes from.
  uses = kUses;
  uses.push_back({"blocks.1.tied", 0});
  uses.push_back({"norm.tied", 1});
  const auto units = planned({"blocks.*"}, uses);
  EXPECT_THAT(units[0].parameters, ElementsAre(0, 1, 5));
  EXPECT_THAT(units[1].parameters, ElementsAre(2));
}

TEST(UnitPlan, WithoutPatternsAllIsTheRoots) {
  const auto units = planned({});
  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units[0].parameters.size(), 6U);
  EXPECT_THAT(plan_units({}, {}, {}).front().parameters, IsEmpty());
}

}  // namespace
}  // namespace ddp
