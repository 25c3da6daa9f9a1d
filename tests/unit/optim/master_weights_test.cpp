// SPDX-License-Identifier: Apache-2.0
// Parameters in bfloat16 and float16 that are trained in float32. The reference is an optimizer of
// libtorch over float32 parameters, which gets the same gradients.
#include "ddp_runtime/optim/master_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/torch_compat.h"
#include "tests/unit/optim/pair_of_optimizers.h"

namespace ddp::optim {
namespace {

KeepsMasters& masters_in(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<KeepsMasters&>(optimizer);
}

// The same parameters twice: short ones of our optimizer, and float32 ones of libtorch's.
class ShortAndLong {
 public:
  ShortAndLong(const Recipe& recipe, const Tensors& values, torch::ScalarType type) : type_(type) {
    for (const auto& value : values) {
      short_.push_back(value.to(type).requires_grad_(true));
      long_.push_back(short_.back().detach().to(torch::kFloat32).requires_grad_(true));
    }
    ours_ = recipe.ours(short_);
    theirs_ = recipe.theirs(long_);
    masters_in(*ours_).keep_masters();
  }

  // Small, so that most updates are lost in the short type.
  void set_gradients() {
    for (std::size_t i = 0; i < short_.size(); ++i) {
      set_gradient(i, (torch::randn_like(long_[i]) * 1e-2).detach());
    }
  }
  void set_gradient(std::size_t i, const torch::Tensor& gradient) {
    if (gradient.defined()) {
      short_[i].mutable_grad() = gradient.to(type_);
      long_[i].mutable_grad() = short_[i].grad().to(torch::kFloat32);
    } else {
      short_[i].mutable_grad().reset();
      long_[i].mutable_grad().reset();
    }
  }
  void step() {
    ours_->step();
    theirs_->step();
  }
  void expect_same() const {
    for (std::size_t i = 0; i < short_.size(); ++i) {
      EXPECT_TRUE(torch::equal(masters().values_of(short_[i]), long_[i])) << "master " << i;
      EXPECT_TRUE(torch::equal(short_[i], long_[i].to(type_))) << "parameter " << i;
    }
  }

  MasterWeights& masters() const { return *masters_in(*ours_).masters(); }
  const Tensors& parameters() const { return short_; }
  const Tensors& references() const { return long_; }
  torch::optim::Optimizer& ours() { return *ours_; }
  torch::optim::Optimizer& theirs() { return *theirs_; }

 private:
  torch::ScalarType type_;
  Tensors short_;
  Tensors long_;
  std::unique_ptr<torch::optim::Optimizer> ours_;
  std::unique_ptr<torch::optim::Optimizer> theirs_;
};

Tensors some_values() {
  torch::manual_seed(7);
  return {torch::randn({5000}), torch::randn({40, 3}), torch::randn({1}),
          torch::randn({9, 200}).t(), torch::randn({0})};
}

class MasterWeightsOf : public testing::TestWithParam<Recipe> {};

INSTANTIATE_TEST_SUITE_P(All, MasterWeightsOf, testing::ValuesIn(recipes()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(MasterWeightsOf, Bfloat16AreTrainedInFloat32) {
  ShortAndLong pair(GetParam(), some_values(), torch::kBFloat16);
  for (int i = 0; i < 5; ++i) {
    pair.set_gradients();
    if (i == 2) pair.set_gradient(1, {});
    pair.step();
    pair.expect_same();
  }
}

TEST_P(MasterWeightsOf, Float16AreTrainedInFloat32) {
  ShortAndLong pair(GetParam(), some_values(), torch::kHalf);
  for (int i = 0; i < 3; ++i) {
    pair.set_gradients();
    pair.step();
    pair.expect_same();
  }
  // The state belongs to the parameters, where checkpoints look for it.
  ASSERT_EQ(pair.ours().state().size(), pair.theirs().state().size());
  for (const auto& parameter : pair.parameters()) {
    EXPECT_EQ(pair.ours().state().count(torch_compat::state_key(parameter)),
              pair.theirs().state().empty() ? 0U : 1U);
    EXPECT_FALSE(pair.masters().values_of(parameter).grad().defined()) << "costs memory";
  }
}

TEST_P(MasterWeightsOf, PartialStepsEqualWholeOnes) {
  ShortAndLong pair(GetParam(), some_values(), torch::kBFloat16);
  for (int i = 0; i < 3; ++i) {
    pair.set_gradients();
    const auto step = dynamic_cast<StepsInParts&>(pair.ours()).begin_partial_step();
    if (step == nullptr) {  // AMSGrad is left to libtorch
      pair.ours().step();
    } else {
      step->update(Tensors{pair.parameters()[3], pair.parameters()[0]});
      step->finish();
    }
    pair.theirs().step();
    pair.expect_same();
  }
}

// The bucket of a reducer: gradients are windows of one tensor, parameters of several types.
TEST_P(MasterWeightsOf, OtherTypesAreTrainedInTheirOwn) {
  const auto recipe = GetParam();
  torch::manual_seed(5);
  const auto half = torch::randn({70}).to(torch::kBFloat16).requires_grad_(true);
  const auto full = torch::randn({70}).requires_grad_(true);
  const auto twice = torch::randn({70}, torch::kFloat64).requires_grad_(true);
  const auto their_full = full.detach().clone().requires_grad_(true);
  const auto their_twice = twice.detach().clone().requires_grad_(true);
  const auto ours = recipe.ours({half, full, twice});
  const auto theirs = recipe.theirs({their_full, their_twice});
  masters_in(*ours).keep_masters();
  for (int i = 0; i < 3; ++i) {
    half.mutable_grad() = torch::randn({70}).to(torch::kBFloat16);
    full.mutable_grad() = torch::randn({70});
    twice.mutable_grad() = torch::randn({70}, torch::kFloat64);
    their_full.mutable_grad() = full.grad().clone();
    their_twice.mutable_grad() = twice.grad().clone();
    ours->step();
    theirs->step();
  }
  EXPECT_TRUE(torch::equal(full, their_full));
  EXPECT_TRUE(torch::equal(twice, their_twice));
  auto& masters = *masters_in(*ours).masters();
  EXPECT_TRUE(masters.values_of(full).is_same(full));
  EXPECT_TRUE(masters.values_of(twice).is_same(twice));
}

// A clamp, as in the critic of a GAN, changes some weights; the others keep the bits that their
// type cannot hold.
TEST_P(MasterWeightsOf, TakeWhatSomeoneElseWrote) {
  ShortAndLong pair(GetParam(), {torch::randn({300})}, torch::kBFloat16);
  const auto& weights = pair.parameters()[0];
  const auto& reference = pair.references()[0];
  for (int i = 0; i < 4; ++i) {
    pair.set_gradients();
    pair.step();
    const torch::NoGradGuard no_grad;
    weights.clamp_(-0.5, 0.5);
    reference.copy_(torch::where(reference.to(torch::kBFloat16).abs() > 0.5,
                                 weights.to(torch::kFloat32), reference));
    pair.expect_same();
  }
  EXPECT_FALSE(torch::equal(reference, weights.to(torch::kFloat32)));
}

// torch::load() of a module replaces the memory of its parameters.
TEST_P(MasterWeightsOf, TakeWeightsInOtherMemory) {
  ShortAndLong pair(GetParam(), some_values(), torch::kBFloat16);
  for (int i = 0; i < 3; ++i) {
    pair.set_gradients();
    pair.step();
    auto weights = pair.parameters()[1];
    auto reference = pair.references()[1];
    const torch::NoGradGuard no_grad;
    const auto loaded = torch::randn({40, 3}).to(torch::kBFloat16);
    weights.set_data(loaded);
    reference.copy_(loaded.to(torch::kFloat32));
    pair.expect_same();
  }
}

TEST_P(MasterWeightsOf, SpecialValuesAreRoundedLikeLibtorch) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto values =
      torch::tensor({0.0F, -0.0F, kInf, -kInf, kNan, 3.3e38F, -3.3e38F, 1e-40F, 1.0F, -1.5F});
  const auto n = values.numel();
  ShortAndLong pair(GetParam(), {values.repeat({n})}, torch::kBFloat16);
  for (int i = 0; i < 2; ++i) {
    pair.set_gradient(0, values.repeat_interleave(n));
    pair.step();
    const auto expected = pair.references()[0].to(torch::kBFloat16);
    EXPECT_TRUE(torch::allclose(pair.parameters()[0].to(torch::kFloat32),
                                expected.to(torch::kFloat32), 0, 0, /*equal_nan=*/true));
  }
}

// What the masters are for.
TEST(MasterWeights, KeepUpdatesThatTheShortTypeLoses) {
  const auto with = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  const auto without = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  SGD ours({with}, torch::optim::SGDOptions(1e-3));
  SGD plain({without}, torch::optim::SGDOptions(1e-3));
  ours.keep_masters();
  for (int i = 0; i < 100; ++i) {
    with.mutable_grad() = torch::ones_like(with);
    without.mutable_grad() = torch::ones_like(without);
    ours.step();
    plain.step();
  }
  EXPECT_FLOAT_EQ(with[0].item<float>(), 0.8984375F);  // 0.9, rounded
  EXPECT_FLOAT_EQ(without[0].item<float>(), 1.0F);
  EXPECT_EQ(plain.masters(), nullptr);
}

// A gradient that libtorch refuses leaves everything as it was.
TEST(MasterWeights, ARefusedGradientChangesNothing) {
  const auto a = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  const auto b = torch::ones({4, 2}, torch::kBFloat16).requires_grad_(true);
  AdamW optimizer({a, b}, torch::optim::AdamWOptions(0.1));
  optimizer.keep_masters();
  a.mutable_grad() = torch::ones_like(a);
  b.mutable_grad() = torch::ones_like(b).to_sparse();
  EXPECT_THROW(optimizer.step(), c10::Error);
  EXPECT_TRUE(torch::equal(a, torch::ones_like(a)));
  EXPECT_TRUE(torch::equal(b, torch::ones_like(b)));
  b.mutable_grad() = torch::ones_like(b);
  optimizer.step();
  EXPECT_NEAR(a[0].item<float>(), 0.9, 0.01);
  EXPECT_NEAR(b[0][0].item<float>(), 0.9, 0.01);
}

TEST(MasterWeights, SharedMemoryIsLeftToLibtorch) {
  const auto memory = torch::ones({10}, torch::kBFloat16);
  const auto a = memory.narrow(0, 0, 6).detach().requires_grad_(true);
  const auto b = memory.narrow(0, 4, 6).detach().requires_grad_(true);
  SGD optimizer({a, b}, torch::optim::SGDOptions(0.5));
  optimizer.keep_masters();
  a.mutable_grad() = torch::ones_like(a);
  b.mutable_grad() = torch::zeros_like(b);
  optimizer.step();
  EXPECT_FLOAT_EQ(a[0].item<float>(), 0.5F);
  EXPECT_FLOAT_EQ(b[5].item<float>(), 1.0F);
}

// A module whose parameters two optimizers train in turn: SGD leaves no trace in the version.
TEST(MasterWeights, KeepTheStepsOfAnotherOptimizer) {
  for (const bool both : {false, true}) {
    const auto p = torch::ones({300}, torch::kBFloat16).requires_grad_(true);
    SGD a({p}, torch::optim::SGDOptions(0.5));
    SGD b({p}, torch::optim::SGDOptions(0.25));
    a.keep_masters();
    if (both) b.keep_masters();
    p.mutable_grad() = torch::ones_like(p);
    a.step();
    b.step();
    p.mutable_grad().zero_();
    a.step();
    EXPECT_FLOAT_EQ(p[7].item<float>(), 0.25F) << both;
  }
}

// Memory that collectives write, or `.data()`, has no new version.
TEST_P(MasterWeightsOf, TakeWritesThatLeaveNoTrace) {
  ShortAndLong pair(GetParam(), {torch::randn({5000}), torch::randn({20, 3})}, torch::kBFloat16);
  for (int i = 0; i < 3; ++i) {
    pair.set_gradients();
    pair.step();
    for (std::size_t k = 0; k < 2; ++k) {
      pair.parameters()[k].data().fill_(100 * (i + 1));
      pair.references()[k].data().fill_(100 * (i + 1));
    }
    if (i == 1) pair.expect_same();
  }
  pair.set_gradients();
  pair.step();
  pair.expect_same();
}

// SGD without momentum has no state whose shape would have to fit.
TEST(MasterWeights, TakeWeightsOfAnotherShape) {
  auto p = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  SGD optimizer({p}, torch::optim::SGDOptions(0.5));
  optimizer.keep_masters();
  for (const std::int64_t size : {4, 6}) {
    p.mutable_grad().reset();
    p.set_data(torch::full({size}, 3, torch::kBFloat16));
    p.mutable_grad() = torch::ones_like(p);
    optimizer.step();
    EXPECT_TRUE(torch::equal(p, torch::full({size}, 2.5, torch::kBFloat16))) << size;
  }
}

TEST(MasterWeights, StateOfTheShortTypeIsRefused) {
  const auto p = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  AdamW optimizer({p}, torch::optim::AdamWOptions(0.1));
  p.mutable_grad() = torch::ones_like(p);
  optimizer.step();
  optimizer.keep_masters();
  EXPECT_THROW(optimizer.step(), UsageError);
}

TEST(MasterWeights, OptimizersCanBeMoved) {
  const auto p = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  auto make = [&] {
    SGD made({p}, torch::optim::SGDOptions(0.5));
    made.keep_masters();
    return made;
  };
  auto optimizer = make();
  const auto moved = std::move(optimizer);
  EXPECT_NE(moved.masters(), nullptr);
}

// A gradient in another order of elements leaves its parameter to libtorch, which comes last in a
// partial step: an update of the same memory must not be moved before it.
TEST(MasterWeights, SharedStorageIsNotUpdatedInParts) {
  const auto memory = torch::ones({10}, torch::kBFloat16);
  const auto a = memory.narrow(0, 0, 4).detach().requires_grad_(true);
  const auto b = memory.narrow(0, 4, 6).view({2, 3}).detach().requires_grad_(true);
  AdamW optimizer({a, b}, torch::optim::AdamWOptions(0.1));
  optimizer.keep_masters();
  a.mutable_grad() = torch::ones_like(a);
  b.mutable_grad() = torch::ones({3, 2}, torch::kBFloat16).t();
  EXPECT_EQ(optimizer.begin_partial_step(), nullptr);
  optimizer.step();
  EXPECT_NEAR(a[0].item<float>(), 0.9, 0.01);
  EXPECT_NEAR(b[0][0].item<float>(), 0.9, 0.01);
}

}  // namespace
}  // namespace ddp::optim
