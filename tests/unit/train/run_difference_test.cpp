// What is said, and what is refused, when a run that resumes is not the one that saved.
#include "ddp_runtime/train/run_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::train {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const json kSaved = {{"seed", 1},      {"data", "text:a"}, {"data_crc32c", "01"},
                     {"samples", 100}, {"momentum", 0.9},  {"optimizer", "sgd"}};

json with(const char* name, const json& value) {
  json changed = kSaved;
  changed[name] = value;
  return changed;
}

TEST(RunDifferences, NoneOfTheSameRun) {
  const auto found = run_differences(kSaved, kSaved, true);
  EXPECT_THAT(found.lines, IsEmpty());
  EXPECT_THAT(found.refusal, IsEmpty());
}

TEST(RunDifferences, ALineForEach) {
  auto now = with("momentum", 0.0);
  now["optimizer"] = "adam";
  const auto found = run_differences(kSaved, now, true);
  EXPECT_THAT(found.lines, ElementsAre("momentum was 0.9 when it was saved and is 0.0 now",
                                       "optimizer was sgd when it was saved and is adam now"));
  EXPECT_THAT(found.refusal, IsEmpty());
}

TEST(RunDifferences, OtherSeedOrDataAreRefusedWithinAnEpoch) {
  EXPECT_THAT(run_differences(kSaved, with("seed", 2), true).refusal, HasSubstr("seed differs"));
  EXPECT_THAT(run_differences(kSaved, with("data_crc32c", "02"), true).refusal,
              HasSubstr("data differ "));
  EXPECT_THAT(run_differences(kSaved, with("samples", 99), true).refusal,
              HasSubstr("data differ "));
  EXPECT_THAT(run_differences(kSaved, with("seed", 2), false).refusal, IsEmpty());
  EXPECT_EQ(run_differences(kSaved, with("seed", 2), false).lines.size(), 1U);
}

TEST(RunDifferences, TheSameDataElsewhereAreTheSame) {
  const auto found = run_differences(kSaved, with("data", "text:b"), true);
  EXPECT_EQ(found.lines.size(), 1U);
  EXPECT_THAT(found.refusal, IsEmpty());
}

TEST(RunDifferences, AnOlderVersionsAreComparedByWhatItKnew) {
  json older = kSaved;
  older.erase("data_crc32c");
  older.erase("samples");
  older.erase("momentum");
  EXPECT_THAT(run_differences(older, kSaved, true).lines, IsEmpty());
  EXPECT_THAT(run_differences(older, with("data", "text:b"), true).refusal,
              HasSubstr("data differ "));
  EXPECT_THAT(run_differences(json(), kSaved, true).lines, IsEmpty());
}

}  // namespace
}  // namespace ddp::train
