// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/checkpoint_interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

CheckpointOptions interval_of(const std::string& text) {
  CheckpointOptions options;
  options.every_steps = 77;  // a default that the text replaces
  set_checkpoint_interval(options, text);
  return options;
}

TEST(CheckpointInterval, TakesStepsEpochsTimesAndAuto) {
  struct Case {
    const char* text;
    std::int64_t steps;
    bool epoch;
    double seconds;
    bool automatic;
    const char* shown;
  };
  for (const auto& c :
       {Case{"epoch", 0, true, 0, false, "epoch"},
        Case{"auto", 0, false, 0, true, "Young interval"}, Case{"1", 1, false, 0, false, "step"},
        Case{"5000", 5000, false, 0, false, "5,000 steps"},
        Case{"90s", 0, false, 90, false, "90 s"}, Case{"10min", 0, false, 600, false, "10 min"},
        Case{"1h30min", 0, false, 5400, false, "90 min"}}) {
    const auto options = interval_of(c.text);
    EXPECT_EQ(options.every_steps, c.steps) << c.text;
    EXPECT_EQ(options.every_epoch, c.epoch) << c.text;
    EXPECT_EQ(options.every_seconds, c.seconds) << c.text;
    EXPECT_EQ(options.every_auto, c.automatic) << c.text;
    EXPECT_EQ(checkpoint_interval_text(options), c.shown);
  }
}

TEST(CheckpointInterval, RefusesOtherTexts) {
  for (const char* text : {"", "0", "-1", "+1", "1.5", "1e3", "never", "10 min", "0min", "epochs",
                           "2000000000000000", "99999999999999999999", "min"}) {
    EXPECT_EQ(error_of([&] { interval_of(text); }),
              std::string("--checkpoint-every takes a number of steps, a time such as 90s, 10min "
                          "or 1h30min, 'epoch' or 'auto', not '") +
                  text + "'");
  }
}

TEST(KeptCheckpoints, TakesStepsAndEpochs) {
  struct Case {
    const char* text;
    std::int64_t steps;
    std::int64_t epochs;
    const char* shown;
  };
  for (const auto& c : {Case{"1000", 1000, 0, "the last 3 and every 1,000 steps for good"},
                        Case{"1", 1, 0, "the last 3 and every step for good"},
                        Case{"5epochs", 0, 5, "the last 3 and every 5 epochs for good"},
                        Case{"1epoch", 0, 1, "the last 3 and every epoch for good"}}) {
    CheckpointOptions options;
    options.keep_every_steps = options.keep_every_epochs = 77;
    set_keep_every(options, c.text);
    EXPECT_EQ(options.keep_every_steps, c.steps) << c.text;
    EXPECT_EQ(options.keep_every_epochs, c.epochs) << c.text;
    EXPECT_EQ(kept_checkpoints_text(options), c.shown);
  }
  for (const char* text : {"", "0", "-1", "epochs", "0epochs", "5 epochs", "5epoch s", "5s",
                           "5epochss", "99999999999epochs", "2000000000000000"}) {
    CheckpointOptions options;
    EXPECT_EQ(error_of([&] { set_keep_every(options, text); }),
              std::string("--keep-every takes a number of steps, or of epochs such as 5epochs, not "
                          "'") +
                  text + "'");
  }
}

TEST(KeptCheckpoints, ShowsTheBest) {
  CheckpointOptions options;
  EXPECT_EQ(kept_checkpoints_text(options), "the last 3");
  options.keep_best = true;
  EXPECT_EQ(kept_checkpoints_text(options), "the last 3 and the best");
  options.best_metric = "accuracy";
  options.keep_every_steps = 10;
  EXPECT_EQ(kept_checkpoints_text(options),
            "the last 3, every 10 steps for good and the best by accuracy");
}

TEST(CheckpointInterval, ShowsAllThatAProgramHasSet) {
  CheckpointOptions options;
  options.every_steps = 100;
  options.every_seconds = 600;
  EXPECT_EQ(checkpoint_interval_text(options), "10 min and 100 steps and epoch");
  options = {};
  options.every_epoch = false;
  EXPECT_EQ(checkpoint_interval_text(options), "run") << "only at its end";
}

}  // namespace
}  // namespace ddp::train
