// SPDX-License-Identifier: Apache-2.0
// Every strategy ends a run with the bits of ranks that divide nothing: the same parameters,
// evaluation and checkpoint, whatever the run does; and each continues what another has saved.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/train/small_runs.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSaved = 3;
constexpr std::int64_t kEnd = 6;

using Change = void (*)(TrainOptions&);

void autocast(TrainOptions& o) {
  o.precision = amp::Precision::bf16;
}
void bf16_weights(TrainOptions& o) {
  o.precision = o.param_type = amp::Precision::bf16;
}
void reduce_in_bf16(TrainOptions& o) {
  o.parallel.reduce_type = torch::kBFloat16;
}
void reduce_in_float32(TrainOptions& o) {
  o.parallel.reduce_type = torch::kFloat32;
}
void average(TrainOptions& o) {
  o.ema_decay = 0.9;
}
void accumulate(TrainOptions& o) {
  o.batch = 2;
  o.micro_batches = 3;
}
void reduce_once(TrainOptions& o) {
  o.reduce_once = true;
}
void clip(TrainOptions& o) {
  o.clip_norm = 0.2;
}
void skip(TrainOptions& o) {
  o.on_nan = OnNan::skip;
  o.loss_scale = 1024;
}

// What ranks do in a run.
struct Kind {
  std::string name;
  std::vector<Change> changes;  // of the options, in order; the last one matters for the bits
  std::vector<Shard> alike = kStrategies;
  Shard as = Shard::none;  // the strategy whose bits they have
  bool overflows = false;  // gradients of rank 1, in one of the steps before the save
  bool is_in_gate = false;
  bool is_on_devices = true;

  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

// Strategies that reduce gradients to the rank that updates with them.
const std::vector<Shard> kReducing = {Shard::gradients, Shard::parameters, Shard::hybrid};
// The norm of whole gradients is added up in another order than that of parts.
const std::vector<Shard> kOfUnits = {Shard::parameters, Shard::hybrid};

std::vector<Kind> all_kinds() {
  return {
      {.name = "float32", .changes = {}, .is_in_gate = true},
      {.name = "bf16_weights", .changes = {bf16_weights}},
      {.name = "averaged", .changes = {average}},
      {.name = "averaged_bf16_weights", .changes = {bf16_weights, average}, .is_in_gate = true},
      {.name = "reduced_in_bf16", .changes = {reduce_in_bf16}},
      {.name = "bf16_weights_reduced_in_float32", .changes = {bf16_weights, reduce_in_float32}},
      // ATen's fused operators of CPUs, which the simulated GPU uses, round the last elements of an
      // array in another way than the others, and a part of an array has other last elements.
      {.name = "skipping", .changes = {skip}, .overflows = true, .is_on_devices = false},
      {.name = "skipping_bf16_weights",
       .changes = {bf16_weights, skip},
       .overflows = true,
       .is_in_gate = true},
      {.name = "skipping_reduced_in_bf16", .changes = {reduce_in_bf16, skip}, .overflows = true},
      {.name = "skipping_bf16_weights_reduced_in_float32",
       .changes = {bf16_weights, reduce_in_float32, skip},
       .overflows = true},
      {.name = "once", .changes = {accumulate, reduce_once}, .alike = kReducing},
      {.name = "once_bf16_weights",
       .changes = {bf16_weights, accumulate, reduce_once},
       .alike = kReducing},
      {.name = "once_reduced_in_bf16",
       .changes = {accumulate, reduce_once, reduce_in_bf16},
       .alike = kReducing},
      {.name = "once_bf16_weights_reduced_in_float32",
       .changes = {bf16_weights, accumulate, reduce_once, reduce_in_float32},
       .alike = kReducing,
       .is_in_gate = true},
      {.name = "once_skipping",
       .changes = {accumulate, reduce_once, skip},
       .alike = kReducing,
       .overflows = true},
      {.name = "clipped", .changes = {clip}, .alike = {}},
      {.name = "clipped_bf16_weights", .changes = {bf16_weights, clip}, .alike = {}},
      {.name = "clipped_reduced_in_bf16",
       .changes = {accumulate, reduce_in_bf16, clip},
       .alike = kOfUnits,
       .as = Shard::gradients},
      {.name = "clipped_bf16_weights_reduced_in_float32",
       .changes = {bf16_weights, accumulate, reduce_in_float32, clip},
       .alike = kOfUnits,
       .as = Shard::gradients},
  };
}

std::vector<Kind> kinds_of_gate() {
  auto kinds = all_kinds();
  std::erase_if(kinds, [](const Kind& kind) { return !kind.is_in_gate; });
  return kinds;
}

struct Ranks {
  const char* optimizer;
  int number;
};
using Trial = std::tuple<Kind, Ranks>;

class SameBits : public SmallRuns, public testing::WithParamInterface<Trial> {
 protected:
  struct End {
    std::uint32_t parameters = 0;
    double loss = 0;
    Saved saved;
  };

  void SetUp() override {
    if (test::on_device() && (!kind_.is_on_devices || ranks_ == 1)) {
      GTEST_SKIP() << "not on the simulated device";
    }
    use(kind_.changes.size());
    if (kind_.overflows) overflowing_call_ = static_cast<int>(options_.micro_batches) + 2;
  }

  // The first of the changes.
  void use(std::size_t changes) {
    options_ = unchanged_;
    options_.optimizer.name = std::get<Ranks>(GetParam()).optimizer;
    options_.checkpoint.every_epoch = false;
    for (std::size_t i = 0; i < changes; ++i) kind_.changes[i](options_);
  }
  End end_of(Shard shard, const std::string& directory = "") {
    const auto parameters = train(shard, kEnd, directory, ranks_);
    return {parameters, loss_, directory.empty() ? Saved() : saved(directory)};
  }
  // Saves with one strategy, and continues with the other.
  End end_of(Shard first, Shard second, const std::string& directory) {
    train(first, kSaved, directory, ranks_);
    const int call = overflowing_call_;
    if (kind_.overflows) overflowing_call_ = kNever;
    const auto end = end_of(second, directory);
    overflowing_call_ = call;
    return end;
  }
  void expect_same(const End& end, const End& expected) const {
    EXPECT_EQ(end.parameters, expected.parameters);
    EXPECT_EQ(end.loss, expected.loss);
    if (test::on_device() && kind_.overflows) return;  // masters differ in the last bits
    EXPECT_TRUE(end.saved == expected.saved);
  }

  const Kind& kind_ = std::get<Kind>(GetParam());
  int ranks_ = std::get<Ranks>(GetParam()).number;
  TrainOptions unchanged_ = options_;
};

TEST_P(SameBits, OfAnUndividedRun) {
  const auto expected = end_of(kind_.as, "expected");
  EXPECT_GT(expected.saved.size(), 4U);
  for (const auto shard : kind_.alike) {
    SCOPED_TRACE(shard_mode_name(shard));
    expect_same(end_of(shard, shard_mode_name(shard)), expected);
  }
}

TEST_P(SameBits, OfARunThatAnotherStrategyContinues) {
  const auto expected = end_of(kind_.as, "expected");
  auto strategies = kind_.alike;
  strategies.push_back(kind_.as);
  auto first = kind_.as;
  for (const auto second : strategies) {
    const auto name = shard_mode_name(first) + ", then " + shard_mode_name(second);
    SCOPED_TRACE(name);
    expect_same(end_of(first, second, name), expected);
    first = second;
  }
}

// All runs would have the same bits if they ignored an option.
TEST_P(SameBits, DependOnTheLastChange) {
  if (kind_.changes.empty() || ranks_ != 2) return;  // a single rank rounds nothing
  const auto shard = kind_.alike.empty() ? kind_.as : kind_.alike.front();
  const auto end = end_of(shard);
  if (kind_.overflows) {
    overflowing_call_ = kNever;
  } else {
    use(kind_.changes.size() - 1);
  }
  const auto without = end_of(shard);
  EXPECT_NE(std::pair(end.parameters, end.loss), std::pair(without.parameters, without.loss));
  if (kind_.changes.back() == average) {
    EXPECT_EQ(end.parameters, without.parameters) << "only evaluations use the average";
  }
}

std::string name_of_trial(const testing::TestParamInfo<Trial>& trial) {
  const auto& [kind, ranks] = trial.param;
  return kind.name + "_" + ranks.optimizer + "_on_" + std::to_string(ranks.number);
}

INSTANTIATE_TEST_SUITE_P(Gate, SameBits,
                         testing::Combine(testing::ValuesIn(kinds_of_gate()),
                                          testing::Values(Ranks{"adamw", 2})),
                         name_of_trial);
INSTANTIATE_TEST_SUITE_P(Full, SameBits,
                         testing::Combine(testing::ValuesIn(all_kinds()),
                                          testing::Values(Ranks{"adamw", 1}, Ranks{"adamw", 2},
                                                          Ranks{"sgd", 3})),
                         name_of_trial);

// ---- Runs that do something else after a checkpoint

struct Switch {
  std::string name;
  std::vector<Change> before;
  std::vector<Change> after;

  friend std::ostream& operator<<(std::ostream& out, const Switch& it) { return out << it.name; }
};

class SameBitsAfter : public SmallRuns, public testing::WithParamInterface<Switch> {
 protected:
  std::uint32_t continued(Shard first, Shard second) {
    const auto name = shard_mode_name(first) + ", then " + shard_mode_name(second);
    use(GetParam().before);
    train(first, kSaved, name);
    use(GetParam().after);
    return train(second, kEnd, name);
  }
  void use(const std::vector<Change>& changes) {
    options_ = unchanged_;
    for (const auto change : changes) change(options_);
  }

  TrainOptions unchanged_ = options_;
};

TEST_P(SameBitsAfter, TheSwitchOfAnUndividedRun) {
  const auto expected = continued(Shard::none, Shard::none);
  EXPECT_NE(expected, train(Shard::none, kEnd));
  for (const auto shard : kStrategies) {
    EXPECT_EQ(continued(shard, shard), expected) << shard_mode_name(shard);
    EXPECT_EQ(continued(shard, Shard::none), expected) << shard_mode_name(shard) << ", then none";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Full, SameBitsAfter,
    testing::Values(Switch{"bf16_to_float32_weights", {bf16_weights}, {autocast}},
                    Switch{"float32_to_bf16_weights", {autocast}, {bf16_weights}},
                    Switch{"bf16_to_float32_sums", {reduce_in_bf16}, {}},
                    Switch{
                        "float32_to_bf16_sums", {bf16_weights, reduce_in_float32}, {bf16_weights}}),
    [](const auto& param_info) { return param_info.param.name; });

class SameBitsOfMoreRanks : public SmallRuns {};

TEST_F(SameBitsOfMoreRanks, ContinueBf16Weights) {
  bf16_weights(options_);
  train(Shard::parameters, kSaved, "two");
  options_.batch = 4;
  for (const auto shard : kStrategies) {
    const auto name = shard_mode_name(shard);
    for (const char* const copy : {"plain", "sharded"}) {
      fs::copy(temporary_.path() / "two", temporary_.path() / (name + copy),
               fs::copy_options::recursive);
    }
    EXPECT_EQ(train(shard, kSaved, name + "sharded", 4),
              train(Shard::none, kSaved, name + "plain", 4));
    EXPECT_EQ(train(shard, kEnd, name + "sharded", 4), train(Shard::none, kEnd, name + "plain", 4))
        << name;
  }
}

}  // namespace
}  // namespace ddp::train
