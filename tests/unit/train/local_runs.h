// SPDX-License-Identifier: Apache-2.0
// Short runs with local steps, whose ends and checkpoints are compared.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ddp_runtime/data/tensor_dataset.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {

class LocalRuns : public testing::Test {
 protected:
  LocalRuns() {
    torch::set_num_threads(1);
    options_.batch = 4;
    options_.optimizer = {"sgd", 0.05, 0.9, 0.01};
    const auto inputs = torch::randn({120, 8}, torch::make_generator<torch::CPUGeneratorImpl>(7));
    const auto targets = inputs.sum(1).gt(0).to(torch::kInt64);
    const auto data = std::make_shared<data::TensorDataset>(inputs, targets, 2);
    data_ = {"numbers", data, data};
  }

  // With statistics, in which ranks differ. Without dropout: ranks that are threads share the
  // generator.
  static torch::nn::Sequential net() {
    return torch::nn::Sequential(torch::nn::Linear(8, 6), torch::nn::BatchNorm1d(6),
                                 torch::nn::ReLU(), torch::nn::Linear(6, 2));
  }

  // `directory`: for checkpoints; empty: none. The end of each rank is that after the evaluation.
  std::vector<test::Values> train(int ranks, std::int64_t steps,
                                  const std::string& directory = "") {
    auto options = options_;
    options.steps = steps;
    if (!directory.empty()) options.checkpoint.directory = temporary_.path() / directory;
    const auto ends = train_ranks(
        ranks, options, data_, net,
        [&](auto& rank) {
          if (change_) change_(rank.group.rank(), rank.options);
          if (loss_of_) rank.task.loss = loss_of_(rank.group.rank());
        },
        node_of_);
    result_ = ends[0].result;
    lines_.clear();
    std::vector<test::Values> states;
    for (const auto& end : ends) {
      lines_ += end.output;
      states.push_back(end.state);
    }
    return states;
  }

  Saved saved(const std::string& directory) const {
    return newest_in(temporary_.path() / directory);
  }
  static bool has_array(const Saved& saved, const std::string& prefix) {
    const auto at = saved.lower_bound(prefix);
    return at != saved.end() && at->first.starts_with(prefix);
  }
  static void expect_same(const std::vector<test::Values>& a, const std::vector<test::Values>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t rank = 0; rank < a.size(); ++rank) {
      for (const auto& [name, tensor] : a[rank]) {
        EXPECT_TRUE(torch::equal(tensor, b[rank].at(name))) << name << " of rank " << rank;
      }
    }
  }
  static void expect_same_on_all_ranks(const std::vector<test::Values>& ends) {
    expect_same(std::vector<test::Values>(ends.size(), ends[0]), ends);
  }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::copy(temporary_.path() / from, temporary_.path() / to,
                          std::filesystem::copy_options::recursive);
  }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
  std::function<void(int rank, TrainOptions&)> change_;
  std::function<LossFunction(int rank)> loss_of_;
  std::function<int(int rank)> node_of_;
  data::DataPair data_;
  RunResult result_;   // of the last run
  std::string lines_;  // of the last run
};

}  // namespace ddp::train
