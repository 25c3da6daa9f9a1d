// SPDX-License-Identifier: Apache-2.0
// The trainer updates bucket by bucket unless something needs all gradients first.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "tests/unit/error_of.h"
#include "tests/unit/parallel/buckets/late_group.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;

class UpdateByBucketInTraining : public testing::Test {
 protected:
  void SetUp() override { torch::set_num_threads(1); }

  static TrainOptions options() {
    TrainOptions o;
    o.epochs = 1;
    o.steps = 8;
    o.batch = 16;
    o.optimizer.name = "adamw";
    o.optimizer.learning_rate = 0.01;
    o.parallel.buckets = {64, 2000};
    return o;
  }

  // Returns rank 0's result. `change` changes the group that the trainer gets.
  RunResult run(const TrainOptions& o, const std::function<void(test::LateGroup&)>& change = {}) {
    RunResult result;
    test::run_ranks(kRanks, [&](comm::Group& inner) {
      test::LateGroup late(inner, change ? "bucket" : "no label begins with this");
      if (change) change(late);
      const auto make = [] { return models::make_model({"mlp", {1, 8, 8}, 10, 32, 3}); };
      const auto end = train_rank(late, o, data_, make);
      if (inner.rank() == 0) result = end.result;
    });
    return result;
  }

  // How often the trace of rank 0 in the report names this phase.
  static std::ptrdiff_t spans(const fs::path& report, const std::string& phase) {
    std::ifstream file(report / "trace.json");
    const auto trace = nlohmann::json::parse(file);
    const auto& events = trace.is_array() ? trace : trace.at("traceEvents");
    return std::ranges::count_if(events, [&](const nlohmann::json& e) {
      return e.value("pid", -1) == 0 && e.value("name", "") == phase;
    });
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path();
  data::DataPair data_ = data::open_data("digits");
};

// Clipping to a norm that no gradient exceeds changes nothing but the order of the work.
TEST_F(UpdateByBucketInTraining, HasTheBitsOfAnUpdateAfterAllGradients) {
  auto o = options();
  o.report_directory = dir_ / "by_bucket";
  const auto by_bucket = run(o);
  o.clip_norm = 1e30;
  o.report_directory = dir_ / "clipped";
  const auto clipped = run(o);
  EXPECT_EQ(by_bucket.parameters_crc32c, clipped.parameters_crc32c);
  EXPECT_EQ(spans(dir_ / "clipped", "optimizer"), o.steps);
  EXPECT_EQ(spans(dir_ / "clipped", "exposed_comm"), o.steps);
  // The trainer's optimizers do not split a step on the device of the tests.
  if (test::on_device()) return;
  EXPECT_GT(spans(dir_ / "by_bucket", "optimizer"), 2 * o.steps);
  EXPECT_GT(spans(dir_ / "by_bucket", "exposed_comm"), 2 * o.steps);
}

TEST_F(UpdateByBucketInTraining, WaitsForAllGradientsToSkipOrScale) {
  for (const bool skips : {true, false}) {
    auto o = options();
    if (skips) o.on_nan = OnNan::skip;
    if (!skips) o.loss_scale = 4;
    o.report_directory = dir_ / (skips ? "skip" : "scale");
    run(o);
    EXPECT_EQ(spans(o.report_directory, "optimizer"), o.steps) << skips;
  }
}

// Rank 1 fails in step 5 when some buckets have been updated. Nothing of that step is saved, and
// the resumed run ends with the bits of one that did not fail.
TEST_F(UpdateByBucketInTraining, FailureBetweenTwoBucketsSavesNothing) {
  if (test::on_device()) GTEST_SKIP() << "the host does not wait for buckets";
  auto o = options();
  const auto whole = run(o);
  o.checkpoint.directory = dir_ / "checkpoints";
  // A save in the background might not be complete when the failure comes.
  auto first = o;
  first.steps = 3;
  run(first);
  o.checkpoint.every_steps = 4;
  const auto text = error_of([&] {
    run(o, [](test::LateGroup& group) {
      auto waits = std::make_shared<int>(0);
      group.on_wait = [&group, waits] {
        const auto phase = group.flight_recorder().snapshot().phase;
        if (group.rank() != 1 || phase.find("step 5") == std::string::npos) return;
        if (++*waits == 3) throw RuntimeError("out of order");
      };
    });
  });
  EXPECT_EQ(text, "out of order");
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints" / "step-00000003"));
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints" / "step-00000005"));
  const auto resumed = run(o);
  EXPECT_EQ(resumed.step, whole.step);
  EXPECT_EQ(resumed.parameters_crc32c, whole.parameters_crc32c);
}

}  // namespace
}  // namespace ddp::train
