// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/shard_report.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace ddp::train {
namespace {

ShardReport written(const std::string& file, bool read_back) {
  ckpt::FileRecord record;
  record.file.name = file;
  record.file.size = 4096;
  record.file.block_bytes = ckpt::kMinBlockBytes;
  return {"", record, read_back};
}

struct ShardCase {
  const char* name;
  std::vector<ShardReport> reports;
  std::vector<std::string> files;
  std::string problem;
  bool verified;
};

class CollectShards : public testing::TestWithParam<ShardCase> {};

TEST_P(CollectShards, GivesFilesFirstProblemAndWhetherAllWereReadBack) {
  std::vector<std::string> texts;
  for (const auto& report : GetParam().reports) texts.push_back(to_text(report));
  const auto shards = collect_shards(texts);
  std::vector<std::string> files;
  for (const auto& record : shards.records) files.push_back(record.file.name);
  EXPECT_EQ(files, GetParam().files);
  EXPECT_EQ(shards.problem, GetParam().problem);
  EXPECT_EQ(shards.verified, GetParam().verified);
}

const ShardReport kWroteNothing{};
const ShardReport kNoSpace{"no space", std::nullopt, false};

INSTANTIATE_TEST_SUITE_P(
    All, CollectShards,
    testing::Values(ShardCase{"OneRank", {written("model.h5", true)}, {"model.h5"}, "", true},
                    ShardCase{"OneRankFails", {kNoSpace}, {}, "no space", true},
                    ShardCase{"SomeRanksWrite",
                              {written("a.h5", true), written("b.h5", true), kWroteNothing},
                              {"a.h5", "b.h5"},
                              "",
                              true},
                    ShardCase{"OneIsNotReadBack",
                              {written("a.h5", true), written("b.h5", false)},
                              {"a.h5", "b.h5"},
                              "",
                              false},
                    ShardCase{"TheLowestRankIsNamed",
                              {written("a.h5", true), kNoSpace, {"no memory", std::nullopt, false}},
                              {"a.h5"},
                              "rank 1: no space",
                              true}),
    [](const auto& test) { return test.param.name; });

TEST(CollectShards, KeepsTheWholeRecord) {
  const auto report = written("a.h5", true);
  const auto shards = collect_shards({to_text(report)});
  ASSERT_EQ(shards.records.size(), 1U);
  EXPECT_EQ(shards.records[0], *report.record);
}

}  // namespace
}  // namespace ddp::train
