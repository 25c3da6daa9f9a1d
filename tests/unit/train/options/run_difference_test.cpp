// SPDX-License-Identifier: Apache-2.0
// The differences between a resumed run and the saved one that are reported or refused.
#include "ddp_runtime/train/options/run_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

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

TEST(RunDifferences, AreEmptyForTheSameRun) {
  const auto found = run_differences(kSaved, kSaved, true);
  EXPECT_THAT(found.lines, IsEmpty());
  EXPECT_THAT(found.refusal, IsEmpty());
}

TEST(RunDifferences, EachHasALine) {
  auto now = with("momentum", 0.0);
  now["optimizer"] = "adam";
  const auto found = run_differences(kSaved, now, true);
  EXPECT_THAT(found.lines, ElementsAre("momentum was 0.9 in the saved run and is 0.0 now",
                                       "optimizer was sgd in the saved run and is adam now"));
  EXPECT_THAT(found.refusal, IsEmpty());
}

TEST(RunDifferences, DifferentSeedOrDataIsRefusedWithinAnEpoch) {
  EXPECT_THAT(run_differences(kSaved, with("seed", 2), true).refusal, HasSubstr("seed differs"));
  EXPECT_THAT(run_differences(kSaved, with("data_crc32c", "02"), true).refusal,
              HasSubstr("data differ "));
  EXPECT_THAT(run_differences(kSaved, with("samples", 99), true).refusal,
              HasSubstr("data differ "));
  EXPECT_THAT(run_differences(kSaved, with("seed", 2), false).refusal, IsEmpty());
  EXPECT_EQ(run_differences(kSaved, with("seed", 2), false).lines.size(), 1U);
}

TEST(RunDifferences, EvaluationsOnDifferentDataAreNotCompared) {
  EXPECT_TRUE(run_differences(kSaved, with("data_crc32c", "02"), false).other_data);
  EXPECT_TRUE(run_differences(kSaved, with("samples", 99), true).other_data);
  EXPECT_FALSE(run_differences(kSaved, with("seed", 2), false).other_data);
}

TEST(RunDifferences, SameDataInAnotherDirectoryIsTheSame) {
  const auto found = run_differences(kSaved, with("data", "text:b"), true);
  EXPECT_FALSE(found.other_data);
  EXPECT_EQ(found.lines.size(), 1U);
  EXPECT_THAT(found.refusal, IsEmpty());
}

TEST(RunDifferences, DataOfOlderVersionsIsComparedByName) {
  json older = kSaved;
  older.erase("data_crc32c");
  older.erase("samples");
  older.erase("momentum");
  EXPECT_THAT(run_differences(older, kSaved, true).lines, IsEmpty());
  EXPECT_THAT(run_differences(older, with("data", "text:b"), true).refusal,
              HasSubstr("data differ "));
  EXPECT_THAT(run_differences(json(), kSaved, true).lines, IsEmpty());
}

struct Changed {
  const char* name;
  std::function<void(TrainOptions&)> change;
  std::vector<std::string> lines;
};

void PrintTo(const Changed& changed, std::ostream* out) {
  *out << changed.name;
}

class SettingDifferences : public testing::TestWithParam<Changed> {};

// Converts the settings to text and back, because the manifest stores them as text.
json settings_of(const TrainOptions& options) {
  return json::parse(run_settings(options).dump());
}

TEST_P(SettingDifferences, EachSettingWithAnEffectHasALine) {
  TrainOptions now;
  GetParam().change(now);
  const auto found = run_differences(settings_of({}), settings_of(now), false);
  EXPECT_EQ(found.lines, GetParam().lines);
  EXPECT_THAT(run_differences(settings_of(now), settings_of(now), true).lines, IsEmpty());
}

std::string line(const char* name, const char* before, const char* after) {
  return std::string(name) + " was " + before + " in the saved run and is " + after + " now";
}

INSTANTIATE_TEST_SUITE_P(
    All, SettingDifferences,
    testing::Values(
        Changed{"Nothing", [](TrainOptions&) {}, {}},
        Changed{"WhatIsSavedAndShown",
                [](TrainOptions& o) {
                  o.checkpoint.keep_last = 7;
                  o.log_every_steps = 3;
                  o.loader_threads = 2;
                },
                {}},
        Changed{"Accumulation",
                [](TrainOptions& o) { o.micro_batches = 4; },
                {line("accumulate", "1", "4")}},
        Changed{
            "Clipping", [](TrainOptions& o) { o.clip_norm = 1.5; }, {line("clip", "0.0", "1.5")}},
        Changed{"Warmup", [](TrainOptions& o) { o.warmup_steps = 9; }, {line("warmup", "0", "9")}},
        Changed{"Scaling",
                [](TrainOptions& o) { o.scale_learning_rate = true; },
                {line("scale_lr", "false", "true")}},
        Changed{"Schedule",
                [](TrainOptions& o) { o.schedule = Schedule::cosine; },
                {line("schedule", "constant", "cosine")}},
        Changed{"Asynchronous",
                [](TrainOptions& o) { o.staleness = 2; },
                {line("staleness", "0", "2")}},
        Changed{"Precision",
                [](TrainOptions& o) { o.precision = amp::Precision::bf16; },
                {line("precision", "fp32", "bf16")}},
        // These two settings have no effect on a constant rate.
        Changed{"DecayOfAConstantRate",
                [](TrainOptions& o) {
                  o.decay_epochs = 1;
                  o.decay_factor = 0.5;
                },
                {}},
        Changed{"LengthOfAConstantRate", [](TrainOptions& o) { o.epochs = 9; }, {}}),
    [](const auto& test) { return test.param.name; });

TEST(RunDifferences, CosineEndAndStepDecayAreCompared) {
  TrainOptions saved;
  saved.schedule = Schedule::cosine;
  saved.epochs = 10;
  TrainOptions now = saved;
  now.epochs = 20;
  EXPECT_THAT(run_differences(settings_of(saved), settings_of(now), false).lines,
              ElementsAre(line("epochs", "10", "20")));
  saved.schedule = now.schedule = Schedule::step;
  now.decay_factor = 0.5;
  EXPECT_THAT(run_differences(settings_of(saved), settings_of(now), false).lines,
              ElementsAre(line("decay_factor", "0.1", "0.5")));
}

TEST(RunDifferences, ScheduleNamesCanBeParsed) {
  for (const auto schedule : {Schedule::constant, Schedule::step, Schedule::cosine}) {
    EXPECT_EQ(parse_schedule(schedule_name(schedule)), schedule);
  }
}

}  // namespace
}  // namespace ddp::train
