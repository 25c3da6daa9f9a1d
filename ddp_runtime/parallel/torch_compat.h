// What differs between libtorch 1.13 and 2.x, in one place.
#pragma once

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <functional>
#include <memory>
#include <utility>

namespace ddp::torch_compat {

#define SLURM_DDP_TORCH_2 (TORCH_VERSION_MAJOR >= 2)

// A hook that runs after a gradient has been accumulated into a parameter. From 2.1 on the class
// wants a second function, for compiled autograd, which C++ programs do not use.
inline std::unique_ptr<torch::autograd::FunctionPostHook> after_accumulation(
    std::function<void()> hook) {
  using torch::autograd::variable_list;
  auto run = [hook = std::move(hook)](const variable_list& outputs, const variable_list&) {
    hook();
    return outputs;
  };
#if SLURM_DDP_TORCH_2
  return std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(run), [](auto&) {});
#else
  return std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(run));
#endif
}

}  // namespace ddp::torch_compat
