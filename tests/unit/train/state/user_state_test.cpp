// SPDX-License-Identifier: Apache-2.0
// A program's own tensors and values: saved with the training, and restored on every rank on
// resume.
#include "ddp_runtime/train/state/user_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/data/open_data.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// State that a program keeps next to its model: a slow average of the weights and its number of
// updates.
struct Teacher {
  // Not contiguous.
  torch::Tensor weights = test::on_test_device(torch::zeros({64, 10}).t());
  std::int64_t moves = 0;

  void follow(const torch::Tensor& student) {
    const torch::NoGradGuard no_grad;
    weights.mul_(0.9).add_(student, 0.1);
    ++moves;
  }
};

class UserStateTraining : public testing::Test {
 protected:
  void SetUp() override {
    torch::set_num_threads(1);
    options_.batch = 32;
    options_.epochs = 1;
    options_.checkpoint.directory = dir_;
  }

  // Trains on two ranks to step `steps`; `add` registers the values to be saved. Returns rank 1's
  // teacher, because rank 0's is the one that was saved.
  template <class Add>
  Teacher train(std::int64_t steps, const Add& add) {
    options_.steps = steps;
    std::vector<std::optional<Teacher>> teachers(2);
    const auto make = [] { return torch::nn::Linear(64, 10); };
    train_ranks(2, options_, data::open_data("digits"), make, [&](auto& rank) {
      auto& teacher = teachers[static_cast<std::size_t>(rank.group.rank())].emplace();
      rank.task.forward = [&teacher, &student = rank.model](const torch::Tensor& x) {
        if (torch::GradMode::is_enabled()) teacher.follow(student->weight);
        return student->forward(x.flatten(1));
      };
      add(rank.task.user_state, teacher);
    });
    return teachers[1].value();
  }

  static void add_all(UserState& state, Teacher& teacher) {
    state.add("teacher/weights", teacher.weights);
    state.add(
        "moves", [&] { return nlohmann::json(teacher.moves); },
        [&](const nlohmann::json& value) { teacher.moves = value.get<std::int64_t>(); });
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path();
  TrainOptions options_;
};

TEST_F(UserStateTraining, IsRestoredOnEveryRankWhenTheRunResumes) {
  options_.checkpoint.directory.clear();
  const auto whole = train(12, add_all);
  options_.checkpoint.directory = dir_;
  train(5, add_all);
  const auto resumed = train(12, add_all);
  EXPECT_EQ(whole.moves, 12);
  EXPECT_EQ(resumed.moves, 12);
  EXPECT_TRUE(torch::equal(resumed.weights, whole.weights));
  EXPECT_GT(whole.weights.abs().sum().item<double>(), 0);
  const auto checkpoint = ckpt::Checkpoint::open(dir_ / "step-00000012");
  EXPECT_EQ(checkpoint.manifest().state.at("user"), (nlohmann::json{{"moves", 12}}));
  ASSERT_NE(checkpoint.find("user/teacher/weights"), nullptr);
  EXPECT_EQ(checkpoint.find("user/teacher/weights")->shape, (ckpt::Shape{10, 64}));
}

TEST_F(UserStateTraining, MismatchIsNamed) {
  train(2, add_all);
  const auto resume = [&](const auto& add) { return error_of<UsageError>([&] { train(4, add); }); };
  EXPECT_THAT(resume([](UserState&, Teacher&) {}), HasSubstr("not expected here: 'user/teacher/w"));
  EXPECT_THAT(resume([](UserState& state, Teacher& teacher) {
                add_all(state, teacher);
                state.add("other", teacher.weights);
              }),
              HasSubstr("missing in the checkpoint: 'user/other'"));
  EXPECT_THAT(resume([](UserState& state, Teacher& teacher) {
                state.add("teacher/weights", test::on_test_device(torch::zeros({10, 63})));
                static_cast<void>(teacher);
              }),
              HasSubstr("float32 [10, 64] there and float32 [10, 63] here"));
  EXPECT_THAT(resume([](UserState& state, Teacher& teacher) {
                state.add("teacher/weights", teacher.weights);
                state.add(
                    "stage", [] { return nlohmann::json(1); }, [](const auto&) {});
              }),
              HasSubstr("(missing in the checkpoint: 'stage'; not added by the program: 'moves')"));
  EXPECT_THAT(resume([](UserState& state, Teacher& teacher) {
                state.add("teacher/weights", teacher.weights);
                state.add(
                    "moves", [] { return nlohmann::json(1); },
                    [](const nlohmann::json& value) { value.get<std::string>(); });
              }),
              HasSubstr("the value 'moves' of the checkpoint cannot be restored: "));
  EXPECT_EQ(train(4, add_all).moves, 4) << "the failed attempts must not change it";
}

TEST_F(UserStateTraining, NonFiniteNumberFailsTheSave) {
  const auto error = error_of([&] {
    train(2, [](UserState& state, Teacher&) {
      state.add(
          "loss", [] { return nlohmann::json(std::nan("")); }, [](const auto&) {});
    });
  });
  EXPECT_THAT(error, HasSubstr("the last one, could not be saved"));
  EXPECT_THAT(error, HasSubstr("/user/loss is not a finite"));
}

TEST(UserState, NamesMustBeUnique) {
  UserState state;
  state.add("a", torch::zeros({1}));
  const auto error = [&](const std::string& name, const torch::Tensor& tensor) {
    return error_of<UsageError>([&] { state.add(name, tensor); });
  };
  EXPECT_THAT(error("a", torch::zeros({1})), HasSubstr("the name 'a' for a user's value"));
  EXPECT_THAT(error("", torch::zeros({1})), HasSubstr("is empty"));
  EXPECT_THAT(error("b", {}), HasSubstr("the tensor 'b' for checkpoints is not defined"));
  EXPECT_THROW(state.add(
                   "a", [] { return nlohmann::json(1); }, [](const auto&) {}),
               UsageError);
}

TEST_F(UserStateTraining, UnsupportedTypeIsFoundBeforeTraining) {
  bool trained = false;
  const auto add = [&](UserState& state, Teacher& teacher) {
    state.add("quantized", torch::empty({2}, torch::kComplexHalf));
    state.add(
        "moves",
        [&] {
          trained = true;
          return nlohmann::json(teacher.moves);
        },
        [](const auto&) {});
  };
  EXPECT_THAT(error_of<UsageError>([&] { train(4, add); }),
              HasSubstr("'user/quantized' is of type ComplexHalf, which a checkpoint cannot hold"));
  EXPECT_FALSE(trained) << "training must not start";
}

}  // namespace
}  // namespace ddp::train
