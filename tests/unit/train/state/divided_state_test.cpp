// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a state that is divided among the ranks: each rank writes and reads its rows.
#include "ddp_runtime/train/state/divided_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/checkpoint/resume/checkpoint_load.h"
#include "ddp_runtime/train/checkpoint/write/write_partition.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/core/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/parallel/branches.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A channels-last convolution, a transposed weight, a scalar, and doubles.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    register_module("conv", conv);
    register_module("last", last);
    transposed = register_parameter("transposed", torch::randn({6, 4}).t());
    scale = register_parameter("scale", torch::tensor(1.5F));
    const torch::NoGradGuard no_grad;
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    last->to(torch::kFloat64);
  }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 7, 2)};
  torch::nn::Linear last{5, 9};
  torch::Tensor transposed;
  torch::Tensor scale;
};
TORCH_MODULE(Odd);

// One rank of a run.
struct OddRank {
  OddRank(comm::Group& group, bool sharded, bool all_parameters = true)
      : net(test::seeded([] { return Odd(); })) {
    auto parameters = net->parameters();
    if (!all_parameters) parameters.erase(parameters.begin());
    optimizer = std::make_unique<torch::optim::AdamW>(
        parameters, torch::optim::AdamWOptions(0.05).amsgrad(true));
    if (sharded) optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), group);
    state = std::make_unique<TrainingState>(group, *net, *optimizer, nullptr, user);
  }

  void make_steps(int count) {
    for (int i = 1; i <= count; ++i) {
      for (auto& p : net->parameters()) {
        p.mutable_grad() = (torch::arange(p.numel(), torch::kFloat64) * i)
                               .sin()
                               .view(p.sizes())
                               .to(p.options().requires_grad(false));
      }
      optimizer->step();
    }
  }

  Odd net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  UserState user;
  std::unique_ptr<TrainingState> state;
};

class DividedStateTest : public testing::Test {
 protected:
  CheckpointOptions options_for(const std::string& name) const {
    CheckpointOptions options;
    options.directory = temporary_.path() / name;
    return options;
  }

  // Saves a checkpoint after step 2, and after each later one up to `last`. Returns the newest.
  fs::path save(const std::string& name, int ranks, bool sharded, int last = 2) {
    const auto options = options_for(name);
    test::run_ranks(ranks, [&](comm::Group& group) {
      OddRank rank(group, sharded);
      Checkpointer checkpointer(group, *rank.state, options, nlohmann::json::object());
      checkpointer.resume(1);
      for (int step = 2; step <= last; ++step) {
        rank.make_steps(step == 2 ? 2 : 1);
        checkpointer.save({.step = step});
        checkpointer.drain();
      }
    });
    return newest(name).path();
  }

  // Resumes, and saves what was loaded under another name. Returns the step.
  std::int64_t resume(const std::string& name, const std::string& other, int ranks, bool sharded,
                      bool all_parameters = true) {
    std::int64_t resumed = -1;
    auto options = options_for(name);
    options.keep_last = 9;
    test::run_ranks(ranks, [&](comm::Group& group) {
      OddRank rank(group, sharded, all_parameters);
      {
        const torch::NoGradGuard no_grad;
        for (auto& p : rank.net->parameters()) p.fill_(3);
      }
      std::optional<Position> position;
      {
        Checkpointer checkpointer(group, *rank.state, options, nlohmann::json::object(),
                                  [&](const std::string& line) { note(line); });
        position = checkpointer.resume(1);
      }
      Checkpointer checkpointer(group, *rank.state, options_for(other), nlohmann::json::object());
      checkpointer.resume(1);
      checkpointer.save(position.value());
      checkpointer.drain();
      if (group.rank() == 0) resumed = position->step;
    });
    return resumed;
  }

  ckpt::Checkpoint newest(const std::string& name) const {
    const auto found = ckpt::CheckpointDirectory(temporary_.path() / name).candidates();
    return ckpt::Checkpoint::open(found.at(0).path);
  }

  // Flips a bit of the array's part in a file.
  static void damage(const ckpt::Checkpoint& checkpoint, const std::string& array,
                     const std::string& file) {
    for (const auto& info : checkpoint.manifest().arrays) {
      if (info.name != array || info.file != file) continue;
      std::fstream stream(checkpoint.path() / file, std::ios::in | std::ios::out);
      stream.seekg(static_cast<std::streamoff>(info.offset));
      const int byte = stream.get();
      stream.seekp(static_cast<std::streamoff>(info.offset));
      stream.put(static_cast<char>(byte ^ 1));
      return;
    }
    FAIL() << file << " has nothing of " << array;
  }

  void note(const std::string& line) {
    const std::lock_guard lock(mutex_);
    log_ += line + "\n";
  }

  test::TemporaryDirectory temporary_;
  std::mutex mutex_;
  std::string log_;
};

TEST_F(DividedStateTest, CheckpointsHaveTheArraysOfAStateThatIsNotDivided) {
  save("whole", 2, false);
  const auto whole = saved_in(newest("whole"));
  EXPECT_GT(whole.size(), 20U);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto name = std::to_string(ranks);
    save(name, ranks, true);
    newest(name).verify();
    EXPECT_EQ(saved_in(newest(name)), whole) << ranks << " ranks";
  }
}

TEST_F(DividedStateTest, EachRankHasAndWritesItsRows) {
  constexpr int kRanks = 3;
  std::vector<std::uint64_t> had(kRanks);
  std::uint64_t all = 0;
  test::run_ranks(kRanks, [&](comm::Group& group) {
    OddRank rank(group, true);
    rank.make_steps(1);
    for (const auto& array : rank.state->collect()) {
      if (!array.division) continue;
      had[static_cast<std::size_t>(group.rank())] += array.tensor.nbytes();
      if (group.rank() == 0) all += array.bytes();
    }
  });
  EXPECT_EQ(had[0] + had[1] + had[2], all);
  EXPECT_LT(*std::max_element(had.begin(), had.end()), all / 2);

  save("parts", kRanks, true);
  std::map<std::string, std::uint64_t> wrote;
  const auto checkpoint = newest("parts");
  for (const auto& info : checkpoint.manifest().arrays) {
    if (info.name.starts_with("optim/") && !info.name.ends_with("/step")) {
      wrote[info.file] += info.length;
    }
  }
  EXPECT_THAT(wrote, testing::ElementsAre(testing::Pair("rank-00000-of-00003.h5", had[0]),
                                          testing::Pair("rank-00001-of-00003.h5", had[1]),
                                          testing::Pair("rank-00002-of-00003.h5", had[2])));
}

TEST_F(DividedStateTest, AnyNumberOfRanksResumesAnyOther) {
  for (const auto& [ranks, sharded] : {std::pair{3, true}, {1, false}}) {
    const auto from = std::string("from") + std::to_string(ranks);
    save(from, ranks, sharded);
    const auto saved = saved_in(newest(from));
    for (const auto& [others, with] : {std::pair{1, false}, {2, true}, {3, true}, {4, true}}) {
      const auto to = from + "to" + std::to_string(others);
      EXPECT_EQ(resume(from, to, others, with), 2);
      EXPECT_EQ(saved_in(newest(to)), saved) << to;
    }
  }
}

TEST_F(DividedStateTest, DamageThatOneRankFindsMakesAllTryAnOlderCheckpoint) {
  save("damaged", 3, true, 3);
  const auto older = ckpt::Checkpoint::open(temporary_.path() / "damaged" / "step-00000002");
  const auto expected = saved_in(older);
  const auto last = newest("damaged");
  ASSERT_EQ(last.manifest().step, 3U);
  damage(last, "optim/last.weight/exp_avg", "rank-00002-of-00003.h5");
  EXPECT_EQ(resume("damaged", "resumed", 3, true), 2);
  EXPECT_EQ(saved_in(newest("resumed")), expected);
  EXPECT_THAT(log_, HasSubstr("(read by rank 2)"));
}

TEST_F(DividedStateTest, DamageOfTheOnlyCheckpointIsAnErrorOnAllRanks) {
  save("damaged", 3, true);
  damage(newest("damaged"), "optim/last.weight/exp_avg", "rank-00002-of-00003.h5");
  const auto error = error_of([&] { resume("damaged", "resumed", 3, true); });
  EXPECT_THAT(error, HasSubstr("none of the 1 checkpoints in"));
  EXPECT_THAT(error, HasSubstr("(read by rank 2)"));
}

// Rank 0 keeps the directory open, so it can read a checkpoint that the others cannot find.
TEST_F(DividedStateTest, RanksThatDoNotSeeTheCheckpointGetTheirRowsFromRankZero) {
  for (const bool another : {false, true}) {
    const std::string name = another ? "another" : "gone";
    const auto path = save(name, 2, true);
    const auto moved = temporary_.path() / (name + "-moved");
    test::run_ranks(3, [&](comm::Group& group) {
      OddRank rank(group, true);
      if (group.rank() == 0) {
        const auto checkpoint = ckpt::Checkpoint::open(path);
        fs::rename(path, moved);
        if (another) fs::copy(save("elsewhere", 1, false, 3), path, fs::copy_options::recursive);
        load_on_all(group, *rank.state, checkpoint);
        end_loading(group, "a text");
      } else {
        EXPECT_EQ(follow_leader(group, *rank.state), "a text");
      }
      rank.state->distribute(1);
      Checkpointer checkpointer(group, *rank.state, options_for(name + "-resumed"),
                                nlohmann::json::object());
      checkpointer.resume(1);
      checkpointer.save({.step = 2});
      checkpointer.drain();
    });
    EXPECT_EQ(saved_in(newest(name + "-resumed")), saved_in(ckpt::Checkpoint::open(moved)));
  }
}

TEST_F(DividedStateTest, DamageThatRankZeroFindsForOthersIsItsError) {
  const auto path = save("damaged", 2, true);
  damage(newest("damaged"), "optim/last.weight/exp_avg", "rank-00001-of-00002.h5");
  test::run_ranks(2, [&](comm::Group& group) {
    OddRank rank(group, true);
    if (group.rank() == 0) {
      const auto checkpoint = ckpt::Checkpoint::open(path);
      fs::rename(path, temporary_.path() / "moved");
      EXPECT_THROW(load_on_all(group, *rank.state, checkpoint), ckpt::DamagedError);
      end_loading(group, "");
    } else {
      EXPECT_EQ(follow_leader(group, *rank.state), "");
    }
  });
}

// All bytes of a checkpoint that a run resumes from are verified, also those of no use to it.
TEST_F(DividedStateTest, StateOfParametersThatAreNotUpdatedAnyMoreIsVerified) {
  save("frozen", 1, false);
  EXPECT_EQ(resume("frozen", "resumed", 2, true, /*all_parameters=*/false), 2);
  EXPECT_EQ(newest("resumed").find("optim/transposed/exp_avg"), nullptr);
  EXPECT_NE(newest("resumed").find("optim/conv.weight/exp_avg"), nullptr);
  damage(newest("frozen"), "optim/transposed/exp_avg", "model.h5");
  EXPECT_THAT(error_of([&] { resume("frozen", "again", 2, true, /*all_parameters=*/false); }),
              HasSubstr("'optim/transposed/exp_avg'"));
}

StateArray whole_array(const std::string& name, std::int64_t elements) {
  return {name, torch::zeros({elements}, torch::kUInt8)};
}

StateArray divided_array(const std::string& name, std::vector<std::size_t> elements, int rank) {
  const auto mine = static_cast<std::int64_t>(elements.at(static_cast<std::size_t>(rank)));
  std::int64_t all = 0;
  for (const auto n : elements) all += static_cast<std::int64_t>(n);
  return {name, torch::zeros({mine}, torch::kUInt8), Division{{all}, std::move(elements)}};
}

std::vector<std::string> names_of(const std::vector<StateArray>& arrays) {
  std::vector<std::string> names;
  for (const auto& array : arrays) names.push_back(array.name);
  return names;
}

TEST(WritePartition, RanksWithRowsWriteAndTheOthersIfThereIsEnough) {
  const auto arrays = [](int rank) {
    return std::vector<StateArray>{divided_array("a", {0, 0, 60, 0}, rank), whole_array("b", 30),
                                   whole_array("c", 10)};
  };
  EXPECT_EQ(bytes_of(arrays(0)), 100U);
  EXPECT_THAT(writers_of(arrays(1), 1000, 4), testing::ElementsAre(0, 2));
  EXPECT_THAT(writers_of(arrays(1), 50, 4), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(writers_of(arrays(1), 1, 4), testing::ElementsAre(0, 1, 2)) << "one per array";
  EXPECT_THAT(writers_of({whole_array("b", 30)}, 1000, 4), testing::ElementsAre(0));
  EXPECT_EQ(shard_name({0, 2}, 2), "rank-00001-of-00002.h5");
  EXPECT_EQ(shard_name({0}, 0), "model.h5");
}

// A rank that writes many rows writes less of the rest.
TEST(WritePartition, BalancesTheRestBehindTheRows) {
  test::run_ranks(1, [](comm::Group& group) {
    OddRank run(group, false);
    const auto share = [&](int rank) {
      const std::vector<StateArray> arrays{
          divided_array("optim/rows", {10, 90, 10}, rank), whole_array("model/transposed", 50),
          whole_array("model/scale", 50), whole_array("optim/scale/step", 20),
          whole_array("rng/rank-0/cpu", 5)};
      return names_of(share_of(*run.state, arrays, {0, 1, 2}, rank));
    };
    EXPECT_THAT(share(0), testing::UnorderedElementsAre("optim/rows", "model/transposed",
                                                        "optim/scale/step", "rng/rank-0/cpu"));
    EXPECT_THAT(share(1), testing::UnorderedElementsAre("optim/rows"));
    EXPECT_THAT(share(2), testing::UnorderedElementsAre("optim/rows", "model/scale"));
  });
}

}  // namespace
}  // namespace ddp::train
