// SPDX-License-Identifier: Apache-2.0
// Optimizers whose state is in a file, compared with libtorch's step.
#include "ddp_runtime/optim/offload/state_file.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <sstream>
#include <string>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/partial_step.h"
#include "tests/unit/error_of.h"
#include "tests/unit/optim/pair_of_optimizers.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::optim {
namespace {

// The build directory, which is hardly ever in memory.
std::unique_ptr<StateFile> new_file() {
  const test::TemporaryDirectory directory(std::filesystem::current_path());
  return std::make_unique<StateFile>(directory.path());
}

KeepsMasters& keeper(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<KeepsMasters&>(optimizer);
}

// Windows end within the first one and within the third one; the second is too small for the file.
Tensors large_values() {
  torch::manual_seed(5);
  return {torch::randn({1'300'000}), torch::randn({40, 3}), torch::randn({900, 1000}),
          torch::randn({130, 200}).t(), torch::randn({16'384})};
}

template <class Use>
void for_each_state_tensor(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                           const Use& use) {
  if (auto* sgd = state_of<torch::optim::SGDParamState>(optimizer, parameter)) {
    use(sgd->momentum_buffer());
  }
  const auto use_adam = [&](auto* state) {
    if (state == nullptr) return;
    use(state->exp_avg());
    use(state->exp_avg_sq());
    if (state->max_exp_avg_sq().defined()) use(state->max_exp_avg_sq());
  };
  use_adam(state_of<torch::optim::AdamParamState>(optimizer, parameter));
  use_adam(state_of<torch::optim::AdamWParamState>(optimizer, parameter));
}

void expect_state_in_file(torch::optim::Optimizer& optimizer, const Tensors& parameters) {
  std::int64_t values = 0;
  const auto* const file = keeper(optimizer).state_file();
  for (const auto& parameter : parameters) {
    for_each_state_tensor(optimizer, parameter, [&](const torch::Tensor& state) {
      const bool large = parameter.numel() >= StateFile::kLeastValues;
      EXPECT_EQ(file->holds(state.data_ptr()), large) << parameter.sizes();
      if (large) values += state.numel();
    });
  }
  EXPECT_GE(file->bytes(), values * 4);
  EXPECT_LE(file->bytes(), values * 4 + 100'000) << "something of earlier steps remained";
}

class StateInAFile : public testing::TestWithParam<Recipe> {};

INSTANTIATE_TEST_SUITE_P(All, StateInAFile, testing::ValuesIn(recipes()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(StateInAFile, TrainsToTheSameBits) {
  Twins twins(GetParam(), large_values());
  keeper(twins.our_optimizer()).offload_state(new_file());
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    if (i == 1) twins.set_gradient(2, {});
    twins.step();
    twins.expect_same();
  }
  expect_state_in_file(twins.our_optimizer(), twins.ours());
}

TEST_P(StateInAFile, AllowsPartialSteps) {
  Twins twins(GetParam(), large_values());
  keeper(twins.our_optimizer()).offload_state(new_file());
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    twins.their_optimizer().step();
    const auto step = dynamic_cast<StepsInParts&>(twins.our_optimizer()).begin_partial_step();
    if (step == nullptr) {  // AMSGrad is left to libtorch
      twins.our_optimizer().step();
    } else {
      step->update(Tensors{twins.ours()[4], twins.ours()[2]});
      step->update(Tensors{twins.ours()[1]});  // nothing of it is in the file
      step->finish();
    }
    twins.expect_same();
  }
  expect_state_in_file(twins.our_optimizer(), twins.ours());
}

// The reference has the same masters in ordinary memory.
TEST_P(StateInAFile, HasTheMastersOfShortWeights) {
  Tensors ours;
  Tensors theirs;
  for (const auto& value : large_values()) {
    ours.push_back(value.to(torch::kBFloat16).requires_grad_(true));
    theirs.push_back(ours.back().detach().clone().requires_grad_(true));
  }
  const auto our_optimizer = GetParam().ours(ours);
  const auto their_optimizer = GetParam().ours(theirs);
  keeper(*our_optimizer).keep_masters();
  keeper(*our_optimizer).offload_state(new_file());
  keeper(*their_optimizer).keep_masters();
  for (int i = 0; i < 3; ++i) {
    for (std::size_t p = 0; p < ours.size(); ++p) {
      theirs[p].mutable_grad() = torch::randn_like(theirs[p]).mul_(0.01).detach();
      ours[p].mutable_grad() = theirs[p].grad().clone();
    }
    our_optimizer->step();
    their_optimizer->step();
  }
  for (std::size_t p = 0; p < ours.size(); ++p) {
    const auto master = keeper(*our_optimizer).masters()->values_of(ours[p]);
    EXPECT_TRUE(same_bits(ours[p], theirs[p])) << p;
    EXPECT_TRUE(same_bits(master, keeper(*their_optimizer).masters()->values_of(theirs[p]))) << p;
    EXPECT_EQ(keeper(*our_optimizer).state_file()->holds(master.data_ptr()),
              master.numel() >= StateFile::kLeastValues);
  }
}

TEST(StateFile, OutlivesTheOptimizerInItsTensors) {
  torch::Tensor state;
  {
    const auto parameter = torch::zeros({20'000}).requires_grad_(true);
    AdamW optimizer({parameter}, torch::optim::AdamWOptions(0.1));
    optimizer.offload_state(new_file());
    parameter.mutable_grad() = torch::ones({20'000});
    optimizer.step();
    state = state_of<torch::optim::AdamWParamState>(optimizer, parameter)->exp_avg();
  }
  EXPECT_TRUE(torch::allclose(state, torch::full({20'000}, 0.1F)));
  state[7] = 3;
  EXPECT_EQ(state[7].item<float>(), 3);
}

// Also state that was made before, or that torch::load() has made.
TEST_P(StateInAFile, TakesStateFromElsewhere) {
  Twins twins(GetParam(), large_values());
  const auto step = [&] {
    twins.set_random_gradients();
    twins.step();
  };
  step();
  keeper(twins.our_optimizer()).offload_state(new_file());
  step();
  twins.expect_same();
  expect_state_in_file(twins.our_optimizer(), twins.ours());
  std::stringstream file;
  torch::save(twins.our_optimizer(), file);
  step();
  torch::load(twins.our_optimizer(), file);
  file.seekg(0);
  torch::load(twins.their_optimizer(), file);
  step();
  twins.expect_same();
  expect_state_in_file(twins.our_optimizer(), twins.ours());
}

TEST(StateFile, RefusesADirectoryThatDoesNotExist) {
  EXPECT_EQ(error_of<UsageError>([] { const StateFile file("/does/not/exist"); }),
            "no file for the optimizer's state can be made in /does/not/exist (No such file or "
            "directory); give a directory on a local disk that exists and that you may write to");
}

TEST(StateFile, RefusesADirectoryInMemory) {
  struct statfs status = {};
  if (::statfs("/dev/shm", &status) != 0 || status.f_type != TMPFS_MAGIC) {
    GTEST_SKIP() << "/dev/shm is no tmpfs here";
  }
  EXPECT_EQ(error_of<UsageError>([] { const StateFile file("/dev/shm"); }),
            "/dev/shm keeps its files in memory, so the optimizer's state would save none there; "
            "give a directory on a local disk");
}

}  // namespace
}  // namespace ddp::optim
