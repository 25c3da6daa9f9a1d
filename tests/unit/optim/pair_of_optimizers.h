// SPDX-License-Identifier: Apache-2.0
// Optimizers by name, as libtorch's class and as ours, and the comparison of what they compute.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {

using Tensors = std::vector<torch::Tensor>;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;

// A kind of optimizer with hyperparameters.
struct Recipe {
  std::string name;
  std::function<OptimizerPointer(Tensors)> theirs;
  std::function<OptimizerPointer(Tensors)> ours;
};

template <class Theirs, class Ours, class Options>
Recipe recipe(std::string name, const Options& options) {
  return {std::move(name),
          [options](Tensors p) { return std::make_unique<Theirs>(std::move(p), options); },
          [options](Tensors p) { return std::make_unique<Ours>(std::move(p), options); }};
}

inline std::vector<Recipe> recipes() {
  using torch::optim::AdamOptions;
  using torch::optim::AdamWOptions;
  using torch::optim::SGDOptions;
  const auto sgd = [](const char* name, const SGDOptions& options) {
    return recipe<torch::optim::SGD, SGD>(name, options);
  };
  const auto adam = [](const char* name, const AdamOptions& options) {
    return recipe<torch::optim::Adam, Adam>(name, options);
  };
  const auto adamw = [](const char* name, const AdamWOptions& options) {
    return recipe<torch::optim::AdamW, AdamW>(name, options);
  };
  return {sgd("sgd", SGDOptions(0.1)),
          sgd("sgd_decay", SGDOptions(0.1).weight_decay(0.03)),
          sgd("sgd_momentum", SGDOptions(0.1).momentum(0.9)),
          sgd("sgd_dampening", SGDOptions(0.1).momentum(0.9).dampening(0.2).weight_decay(0.03)),
          sgd("sgd_nesterov", SGDOptions(0.1).momentum(0.9).weight_decay(0.03).nesterov(true)),
          adam("adam", AdamOptions(0.01)),
          adam("adam_decay", AdamOptions(0.01).weight_decay(0.03).betas({0.8, 0.95}).eps(1e-6)),
          adam("adam_amsgrad", AdamOptions(0.01).amsgrad(true)),
          adamw("adamw", AdamWOptions(0.01)),
          adamw("adamw_no_decay", AdamWOptions(0.01).weight_decay(0).betas({0.8, 0.95})),
          adamw("adamw_amsgrad", AdamWOptions(0.01).amsgrad(true))};
}

// Bitwise, except that all NaNs are the same: which of its operands' NaNs an operation returns
// depends on their order, which the compiler chooses.
inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  const auto comparable = [](const torch::Tensor& t) {
    const auto values = t.detach().contiguous();
    return values.masked_fill(values.isnan(), std::numeric_limits<double>::quiet_NaN());
  };
  const auto x = comparable(a);
  const auto y = comparable(b);
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0);
}

template <class State>
const State* state_of(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(torch_compat::state_key(parameter));
  if (found == optimizer.state().end()) return nullptr;
  return dynamic_cast<const State*>(found->second.get());
}

template <class State>
void expect_same_adam_state(const State* a, const State* b) {
  ASSERT_EQ(a == nullptr, b == nullptr);
  if (a == nullptr) return;
  EXPECT_EQ(a->step(), b->step());
  EXPECT_TRUE(same_bits(a->exp_avg(), b->exp_avg()));
  EXPECT_TRUE(same_bits(a->exp_avg_sq(), b->exp_avg_sq()));
  EXPECT_TRUE(same_bits(a->max_exp_avg_sq(), b->max_exp_avg_sq()));
}

// A set of parameters twice, with an optimizer for each.
class Twins {
 public:
  Twins(const Recipe& recipe, const Tensors& parameters)
      : ours_(copies(parameters)),
        theirs_(copies(parameters)),
        our_optimizer_(recipe.ours(ours_)),
        their_optimizer_(recipe.theirs(theirs_)) {}

  const Tensors& ours() const { return ours_; }
  const Tensors& theirs() const { return theirs_; }
  torch::optim::Optimizer& our_optimizer() { return *our_optimizer_; }
  torch::optim::Optimizer& their_optimizer() { return *their_optimizer_; }
  void replace_optimizers(OptimizerPointer ours, OptimizerPointer theirs) {
    our_optimizer_ = std::move(ours);
    their_optimizer_ = std::move(theirs);
  }

  void set_gradient(std::size_t index, const torch::Tensor& gradient) {
    for (const auto* side : {&ours_, &theirs_}) {
      (*side)[index].mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
    }
  }
  // Normally distributed gradients of the size of the parameters, with their strides.
  void set_random_gradients() {
    for (std::size_t i = 0; i < ours_.size(); ++i) {
      set_gradient(i, torch::randn_like(ours_[i]).detach());
    }
  }
  void step() {
    our_optimizer_->step();
    their_optimizer_->step();
  }
  void expect_same() const {
    for (std::size_t i = 0; i < ours_.size(); ++i) {
      SCOPED_TRACE("parameter " + std::to_string(i));
      EXPECT_TRUE(same_bits(ours_[i], theirs_[i])) << ours_[i].sizes();
      const auto& ours = ours_[i];
      const auto& theirs = theirs_[i];
      const auto* a = state_of<torch::optim::SGDParamState>(*our_optimizer_, ours);
      const auto* b = state_of<torch::optim::SGDParamState>(*their_optimizer_, theirs);
      ASSERT_EQ(a == nullptr, b == nullptr);
      if (a != nullptr) {
        EXPECT_TRUE(same_bits(a->momentum_buffer(), b->momentum_buffer()));
      }
      using torch::optim::AdamParamState;
      using torch::optim::AdamWParamState;
      expect_same_adam_state(state_of<AdamParamState>(*our_optimizer_, ours),
                             state_of<AdamParamState>(*their_optimizer_, theirs));
      expect_same_adam_state(state_of<AdamWParamState>(*our_optimizer_, ours),
                             state_of<AdamWParamState>(*their_optimizer_, theirs));
    }
  }

 private:
  static Tensors copies(const Tensors& tensors) {
    Tensors result;
    for (const auto& t : tensors) {
      // The same strides, gaps included.
      auto copy = torch::empty_strided(t.sizes(), t.strides(), t.options());
      copy.copy_(t);
      result.push_back(copy.requires_grad_(true));
    }
    return result;
  }

  Tensors ours_;
  Tensors theirs_;
  OptimizerPointer our_optimizer_;
  OptimizerPointer their_optimizer_;
};

}  // namespace ddp::optim
