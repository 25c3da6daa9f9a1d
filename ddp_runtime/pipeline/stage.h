// SPDX-License-Identifier: Apache-2.0
// One of the parts into which a model is cut: each works on the result of the one before it.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

namespace ddp::pipeline {

struct Stage {
  // Has the parameters and buffers; null for a function without them.
  std::shared_ptr<torch::nn::Module> module = {};
  // Gets the result of the previous stage, or the input of the micro-batch. Its argument is a leaf
  // of the graph, so it cannot be changed in place.
  std::function<torch::Tensor(const torch::Tensor&)> forward = {};

  bool empty() const noexcept { return !forward; }
};

// For a module whose forward() takes and returns a tensor, such as torch::nn::Sequential.
template <class Module>
Stage make_stage(std::shared_ptr<Module> module) {
  return {module, [module](const torch::Tensor& input) { return module->forward(input); }};
}
template <class Module>
Stage make_stage(const torch::nn::ModuleHolder<Module>& module) {
  return make_stage(module.ptr());
}

}  // namespace ddp::pipeline
