// SPDX-License-Identifier: Apache-2.0
// Any strategy of sharding and number of ranks continues what any other has saved.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/model/freeze.h"
#include "ddp_runtime/train/options/shard_mode.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSavedStep = 2;
constexpr std::int64_t kLastStep = 4;
constexpr std::int64_t kGlobalBatch = 24;

struct Side {
  int ranks = 1;
  Shard shard = Shard::none;
  bool in_pairs = false;  // two nodes of two ranks each

  std::string name() const {
    return shard_mode_name(shard) + (in_pairs ? "-in-pairs-of-" : "-of-") + std::to_string(ranks);
  }
};

std::vector<Side> sides_of(int ranks) {
  std::vector<Side> sides;
  for (const auto shard :
       {Shard::none, Shard::optimizer, Shard::gradients, Shard::parameters, Shard::hybrid}) {
    sides.push_back({ranks, shard});
  }
  if (ranks == 4) sides.push_back({ranks, Shard::hybrid, true});
  return sides;
}

std::vector<int> numbers_of_ranks() {
  if (test::on_device()) return {2, 4};  // the simulated ones are slower
  return {1, 2, 3, 4};
}

class ResumeMatrix : public testing::Test {
 protected:
  ResumeMatrix() { torch::set_num_threads(1); }

  // Continues what is in the directory, and saves at the end. `from`, if not empty, is the
  // checkpoint to begin with.
  void train(const Side& side, std::int64_t steps, const std::string& directory,
             const fs::path& from = {}) {
    TrainOptions options;
    options.batch = kGlobalBatch / side.ranks;
    options.optimizer = {"adamw", 0.01, 0.9, 0.01};
    options.shard = side.shard;
    options.steps = steps;
    options.checkpoint.directory = temporary_.path() / directory;
    if (!from.empty()) options.checkpoint.resume = from.string();
    const auto make = [] {
      // Three classes: ranks without a row of the last bias.
      auto model =
          models::make_model({.name = "mlp", .input = {1, 3, 3}, .classes = 3, .width = 7});
      freeze(*model, "hidden.0.bias");
      return model;
    };
    train_ranks(
        side.ranks, options, data_, make,
        [](auto& rank) { rank.options.units = rank.model->units(); },
        [&](int rank) { return side.in_pairs ? rank / 2 : 0; });
  }

  fs::path newest(const std::string& directory) const {
    return ckpt::CheckpointDirectory(temporary_.path() / directory).candidates().at(0).path;
  }
  Saved saved(const std::string& directory) const {
    const auto checkpoint = ckpt::Checkpoint::open(newest(directory));
    checkpoint.verify();
    return saved_in(checkpoint);
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::copy(temporary_.path() / from, temporary_.path() / to, fs::copy_options::recursive);
  }

  // Pairs add up in another order, so they are not bitwise the same.
  static void expect_saved(const Saved& values, const Saved& expected, bool same_bits) {
    EXPECT_TRUE(expected.contains("model/hidden.0.bias"));  // which is frozen
    ASSERT_EQ(values.size(), expected.size());
    for (const auto& [name, bytes] : values) {
      const auto& others = expected.at(name);
      ASSERT_EQ(bytes.size(), others.size()) << name;
      if (same_bits || name.ends_with("/step")) {
        EXPECT_EQ(std::memcmp(bytes.data(), others.data(), bytes.size()), 0) << name;
        continue;
      }
      std::vector<float> a(bytes.size() / sizeof(float));
      std::vector<float> b(a.size());
      std::memcpy(a.data(), bytes.data(), bytes.size());
      std::memcpy(b.data(), others.data(), bytes.size());
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name;
    }
  }

  test::TemporaryDirectory temporary_;
  data::DataPair data_ = random_images({kLastStep * kGlobalBatch, 1, 3, 3}, 3);
};

// Shards have no buckets, whose order a later run without shards needs to have the same bits.
TEST_F(ResumeMatrix, ShardsPassTheOrderOfBucketsOn) {
  const auto order = [this] {
    return ckpt::Checkpoint::open(newest("order")).read("ddp/gradient_order").bytes;
  };
  train({2}, kSavedStep, "order");
  const auto saved = order();
  train({2, Shard::parameters}, kLastStep, "order");
  EXPECT_EQ(order(), saved);
}

TEST_F(ResumeMatrix, OfStrategiesWithTheSameNumberOfRanks) {
  for (const int ranks : numbers_of_ranks()) {
    const auto whole = "whole" + std::to_string(ranks);
    train({ranks}, kLastStep, whole);
    const auto expected = saved(whole);
    for (const auto& first : sides_of(ranks)) {
      const auto begun = "begun-" + first.name();
      train(first, kSavedStep, begun);
      for (const auto& second : sides_of(ranks)) {
        SCOPED_TRACE(first.name() + ", then " + second.name());
        const auto continued = "continued-" + first.name() + "-" + second.name();
        copy(begun, continued);
        train(second, kLastStep, continued);
        expect_saved(saved(continued), expected, !first.in_pairs && !second.in_pairs);
      }
    }
  }
}

// The values are those of a training that continues without shards. Not each pair of strategies is
// tried with each pair of numbers, but each one saves for all numbers, and resumes from all.
TEST_F(ResumeMatrix, OfNumbersOfRanks) {
  for (const int ranks : numbers_of_ranks()) {
    const auto firsts = sides_of(ranks);
    for (const auto& first : firsts) train(first, kSavedStep, "begun-" + first.name());
    for (const int others : numbers_of_ranks()) {
      if (others == ranks) continue;
      const auto whole = "whole" + std::to_string(ranks) + std::to_string(others);
      copy("begun-" + firsts.front().name(), whole);
      train({others}, kLastStep, whole);
      const auto expected = saved(whole);
      const auto resuming = sides_of(others);
      for (std::size_t i = 0; i < firsts.size(); ++i) {
        const auto& first = firsts[i];
        const auto& second = resuming[(i + static_cast<std::size_t>(ranks)) % resuming.size()];
        SCOPED_TRACE(first.name() + ", then " + second.name());
        const auto continued = "continued-" + first.name() + "-" + second.name();
        copy("begun-" + first.name(), continued);
        train(second, kLastStep, continued);
        expect_saved(saved(continued), expected, !first.in_pairs && !second.in_pairs);
      }
    }
  }
}

// What is loaded and saved at once remains the same.
TEST_F(ResumeMatrix, WithoutAStep) {
  for (const auto& first : sides_of(4)) {
    const auto begun = "begun-" + first.name();
    train(first, kSavedStep, begun);
    for (const auto& second : sides_of(3)) {
      SCOPED_TRACE(first.name() + ", then " + second.name());
      const auto again = "again-" + first.name() + "-" + second.name();
      train(second, kSavedStep, again, newest(begun));
      expect_saved(saved(again), saved(begun), true);
    }
  }
}

}  // namespace
}  // namespace ddp::train
