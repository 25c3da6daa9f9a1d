// SPDX-License-Identifier: Apache-2.0
// Ranks that were started with different options or data.
#include "ddp_runtime/train/ranks/rank_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const json kRun = {{"seed", 1}, {"learning_rate", 0.05}, {"data_crc32c", "01"}};

std::string with(const char* name, const json& value) {
  json changed = kRun;
  changed[name] = value;
  return changed.dump();
}

TEST(RankAgreement, NoDifferencesIfAllRunsAreTheSame) {
  EXPECT_THAT(rank_differences({kRun.dump(), kRun.dump()}), IsEmpty());
}

TEST(RankAgreement, NamesTheRankThatDiffersFromMostOthers) {
  EXPECT_EQ(rank_differences({with("learning_rate", 0.1), kRun.dump(), kRun.dump()}),
            "the ranks were started with different options or data: rank 0 has learning_rate 0.1 "
            "instead of 0.05 (as "
            "rank 1 has); start all ranks with the same options and data");
  EXPECT_THAT(rank_differences({kRun.dump(), with("seed", 2)}),
              HasSubstr("rank 1 has seed 2 instead of 1 (as rank 0 has)"));
}

TEST(RankAgreement, ListsEachDifferenceAndAnOptionThatOneRankLacks) {
  json other = kRun;
  other.erase("seed");
  other["data_crc32c"] = "02";
  EXPECT_THAT(rank_differences({kRun.dump(), other.dump()}),
              HasSubstr("rank 1 has data_crc32c 02 instead of 01, seed not set instead of 1"));
}

TEST(RankAgreement, NamesAFewOfManyRanks) {
  std::vector<std::string> runs(30, kRun.dump());
  for (std::size_t rank = 1; rank < 12; ++rank) runs[rank] = with("seed", 2);
  EXPECT_THAT(rank_differences(runs),
              AllOf(HasSubstr("rank 8 has seed 2"), Not(HasSubstr("rank 9 ")),
                    HasSubstr("; 3 more ranks differ")));
}

TEST(RankAgreement, DifferenceIsAnErrorWithTheSameTextOnAllRanks) {
  for (const int odd : {0, 2}) {
    const auto error = error_of([&] {
      comm::run_ranks(3, [&](comm::Group& group) {
        auto run = kRun;
        if (group.rank() == odd) run["seed"] = 7;
        EXPECT_THROW(require_same_run(group, run), UsageError);
        require_same_run(group, run);
      });
    });
    EXPECT_THAT(error, HasSubstr("rank " + std::to_string(odd) + " has seed 7 instead of 1"));
  }
  comm::run_ranks(3, [&](comm::Group& group) { require_same_run(group, kRun); });
}

TEST(ProblemOnLeader, IsToldToAllRanks) {
  comm::run_ranks(3, [](comm::Group& group) {
    EXPECT_EQ(problem_on_leader(group, [] {}), "");
    const auto problem = problem_on_leader(group, [&] {
      EXPECT_EQ(group.rank(), 0);
      throw RuntimeError("the disk is full");
    });
    EXPECT_EQ(problem, "the disk is full");
  });
}

}  // namespace
}  // namespace ddp::train
