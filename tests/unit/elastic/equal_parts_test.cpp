// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/equal_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct CommandLineCase {
  const char* words;
  std::size_t number;  // 0: none is told
};

class CommandLines : public testing::TestWithParam<CommandLineCase> {};

TEST_P(CommandLines, SayWhatTheRanksDivide) {
  std::vector<std::string> program;
  for (const auto word : words_of(GetParam().words)) program.emplace_back(word);
  const auto divisible = divisible_by_ranks(program);
  EXPECT_EQ(divisible ? divisible->number : 0, GetParam().number);
}

INSTANTIATE_TEST_SUITE_P(
    EqualParts, CommandLines,
    testing::Values(CommandLineCase{"ddp-train --global-batch 96 --blocks 12", 12},
                    CommandLineCase{"/opt/bin/ddp-train --blocks=24 --global-batch=96", 24},
                    CommandLineCase{"nice -n 5 ddp-train --blocks 12 --blocks 60", 60},
                    CommandLineCase{"ddp-train --global-batch 96", 96},
                    CommandLineCase{"ddp-train --global-batch 96 --accumulate 4", 24},
                    CommandLineCase{"ddp-train --global-batch 96 --accumulate 5", 0},
                    CommandLineCase{"ddp-train --global-batch 96 --stages 2", 0},
                    CommandLineCase{"ddp-train --global-batch 0 --batch 8", 0},
                    CommandLineCase{"ddp-train --blocks", 0},
                    CommandLineCase{"ddp-train --blocks -3", 0},
                    CommandLineCase{"ddp-train --blocks 99999999999999999999", 0},
                    CommandLineCase{"ddp-train --blocksize 7", 0},
                    CommandLineCase{"--blocks 12 ddp-train --model mlp", 0},
                    CommandLineCase{"python train.py --blocks 12", 0},
                    CommandLineCase{"not-ddp-train --blocks 12", 0}, CommandLineCase{"", 0}));

TEST(CommandLine, TakesOptionsOfAFileBeforeItsOwn) {
  const auto program = with_options_of_ddp_train({"nice", "ddp-train", "--blocks", "12"},
                                                 {"--blocks=24", "--report-dir=r"});
  EXPECT_EQ(divisible_by_ranks(program)->number, 12U);
  EXPECT_EQ(option_of_ddp_train(program, "--report-dir"), "r");
  EXPECT_THAT(with_options_of_ddp_train({"python", "t.py"}, {"--blocks=24"}),
              ElementsAre("python", "t.py"));
}

Settings nodes(std::size_t min, std::size_t max, int ranks_per_node) {
  Settings settings;
  settings.min_nodes = min;
  settings.max_nodes = max;
  settings.ranks_per_node = ranks_per_node;
  return settings;
}

TEST(EqualParts, OnlyNodesWhoseRanksDivideAreUsed) {
  EXPECT_THAT(sizes_with_equal_parts(nodes(1, 6, 1), {12, ""}), ElementsAre(1, 2, 3, 4, 6));
  EXPECT_THAT(sizes_with_equal_parts(nodes(2, 6, 2), {12, ""}), ElementsAre(2, 3, 6));
  EXPECT_THAT(sizes_with_equal_parts(nodes(1, 100, 4), {12, ""}), ElementsAre(1, 3));
  EXPECT_THAT(sizes_with_equal_parts(nodes(60, 64, 8), {3840, ""}), ElementsAre(60));
}

TEST(EqualParts, NoPossibleNumberIsAUsageError) {
  try {
    sizes_with_equal_parts(nodes(1, 2, 5), {12, "--blocks 12 of ddp-train"});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "--blocks 12 of ddp-train cannot be divided equally among 5 to 10 ranks (5 on "
                 "each node); change --nodes, --ranks-per-node or that number");
  }
}

}  // namespace
}  // namespace ddp::elastic
