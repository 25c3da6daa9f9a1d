// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/shard_prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ddp_runtime/profile/process_memory.h"
#include "ddp_runtime/train/memory/step_memory.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kMiB = 1 << 20;

ShardPrediction prediction(ShardStrategy chosen) {
  return {.chosen = chosen,
          .possible = {ShardStrategy::none, ShardStrategy::optimizer},
          .sizes = {.trained = 8 * kMiB, .state = 16 * kMiB, .fresh_gradients = kMiB},
          .layout = {.ranks = 4, .nodes = 4}};
}

TEST(ShardPrediction, ReportHasTheChosenStrategy) {
  const auto report = sharding_of_report(prediction(ShardStrategy::optimizer), 21 * kMiB);
  EXPECT_EQ(report, nlohmann::json({{"strategy", "optimizer"},
                                    {"divided_by", 4},
                                    {"reduce_type", "auto"},
                                    {"reduce_once", false},
                                    {"predicted_bytes_between_steps", 20 * kMiB},
                                    {"predicted_bytes_in_step", kMiB},
                                    {"predicted_bytes_offloaded", 0},
                                    {"predicted_bytes_sent_per_step", 18 * kMiB},
                                    {"measured_peak_bytes", 21 * kMiB}}));
  const auto unmeasured = sharding_of_report(prediction(ShardStrategy::none), std::nullopt);
  EXPECT_EQ(unmeasured.at("strategy"), "none");
  EXPECT_TRUE(unmeasured.at("measured_peak_bytes").is_null());
}

TEST(ShardPrediction, TableMarksTheChosenStrategyAndHasItsPeak) {
  const auto table = strategy_table(prediction(ShardStrategy::optimizer), 21 * kMiB);
  EXPECT_THAT(table, HasSubstr("\n  none                                      32.0         1.0"
                               "           12.0\n"));
  EXPECT_THAT(table, HasSubstr("\n* optimizer                                 20.0         1.0"
                               "           18.0           21.0\n"));
  EXPECT_THAT(table, HasSubstr("measured: "));
  EXPECT_THAT(table, Not(HasSubstr("gradients     ")));
}

TEST(ShardPrediction, TableHasWhatIsInFiles) {
  auto with_files = prediction(ShardStrategy::optimizer);
  EXPECT_THAT(strategy_table(with_files, 0), Not(HasSubstr("offloaded")));
  with_files.sizes.offloaded = with_files.sizes.state;
  with_files.sizes.state = 0;
  EXPECT_THAT(strategy_table(with_files, std::nullopt),
              HasSubstr("  offloaded: 4.0 MiB per rank of the optimizer's state are in a file\n"));
}

TEST(ShardPrediction, UnknownPeakIsAQuestionMark) {
  const auto table = strategy_table(prediction(ShardStrategy::none), std::nullopt);
  EXPECT_THAT(table, HasSubstr("            ?\n"));
  EXPECT_THAT(table, Not(HasSubstr("measured: ")));
}

// ---- StepMemory

// A sanitizer keeps freed memory, and has its own beside it.
bool counts_sanitizer() {
#ifdef SLURM_DDP_SANITIZED
  return true;
#else
  return false;
#endif
}

std::vector<char> touched(std::int64_t bytes) {
  return std::vector<char>(static_cast<std::size_t>(bytes), 'x');
}

TEST(StepMemory, MeasuresThePeakAndNotWhatWasThereBefore) {
  if (counts_sanitizer()) GTEST_SKIP();
  const auto there = touched(64 * kMiB);
  // A model of half of that.
  StepMemory memory(32 * kMiB);
  EXPECT_EQ(memory.peak(), std::nullopt) << "begin() was not called";
  { const auto before = touched(128 * kMiB); }
  memory.begin();
  const auto kept = touched(48 * kMiB);
  { const auto freed = touched(64 * kMiB); }
  const auto peak = memory.peak();
  ASSERT_TRUE(peak);
  // The model, what is kept and what was freed.
  EXPECT_GT(*peak, (32 + 48 + 64 - 2) * kMiB);
  EXPECT_LT(*peak, (32 + 48 + 64 + 2) * kMiB);
  EXPECT_EQ(there.back(), kept.back());
}

TEST(ProcessMemory, LargestOutlivesAReset) {
  if (counts_sanitizer()) GTEST_SKIP();
  { const auto large = touched(256 * kMiB); }
  const auto largest = profile::largest_memory();
  EXPECT_GT(largest, 256 * kMiB);
  profile::reset_peak_memory();
  EXPECT_LT(profile::process_memory().peak, largest - 128 * kMiB);
  EXPECT_GE(profile::largest_memory(), largest);
}

}  // namespace
}  // namespace ddp::train
