// SPDX-License-Identifier: Apache-2.0
// Calls a module whose parameters are whole only while it computes.
//
//   torch::Tensor forward(torch::Tensor x) {
//     for (const auto& block : blocks_) x = ddp::unit(*block)(x, mask_);
//     return x;
//   }
//
// where the model called (*block)(x, mask_). Unless the module is a unit of a ShardedDataParallel
// (see there), that is block->forward(x, mask_), so a model that uses it runs anywhere.
#pragma once

#include <torch/torch.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/sharded/units/unit_calls.h"

namespace ddp {

// Appends the tensors of a result: of a tensor, and of a pair, tuple, vector, array or optional of
// results, such as that of an LSTM.
inline void append_tensors(const torch::Tensor& tensor, std::vector<torch::Tensor>& out) {
  if (tensor.defined()) out.push_back(tensor);
}
template <class T>
void append_tensors(const std::optional<T>& result, std::vector<torch::Tensor>& out);
template <class T>
void append_tensors(const std::vector<T>& results, std::vector<torch::Tensor>& out);
template <class T, std::size_t N>
void append_tensors(const std::array<T, N>& results, std::vector<torch::Tensor>& out);
template <class A, class B>
void append_tensors(const std::pair<A, B>& results, std::vector<torch::Tensor>& out);
template <class... T>
void append_tensors(const std::tuple<T...>& results, std::vector<torch::Tensor>& out);

template <class T>
void append_tensors(const std::optional<T>& result, std::vector<torch::Tensor>& out) {
  if (result) append_tensors(*result, out);
}
template <class T>
void append_tensors(const std::vector<T>& results, std::vector<torch::Tensor>& out) {
  for (const auto& result : results) append_tensors(result, out);
}
template <class T, std::size_t N>
void append_tensors(const std::array<T, N>& results, std::vector<torch::Tensor>& out) {
  for (const auto& result : results) append_tensors(result, out);
}
template <class A, class B>
void append_tensors(const std::pair<A, B>& results, std::vector<torch::Tensor>& out) {
  append_tensors(results.first, out);
  append_tensors(results.second, out);
}
template <class... T>
void append_tensors(const std::tuple<T...>& results, std::vector<torch::Tensor>& out) {
  std::apply([&](const auto&... result) { (append_tensors(result, out), ...); }, results);
}

template <class Module>
class UnitCall {
 public:
  explicit UnitCall(Module& module) : module_(module) {}

  // Collective if the module is a unit. Returns module.forward(arguments...).
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    UnitCalls* const calls = unit_calls_of(module_);
    const auto number = calls == nullptr ? std::nullopt : calls->find_unit(module_);
    if (!number) return module_.forward(std::forward<Arguments>(arguments)...);
    const EnteredUnit entered(*calls, *number);
    auto result = module_.forward(std::forward<Arguments>(arguments)...);
    std::vector<torch::Tensor> outputs;
    append_tensors(result, outputs);
    calls->expect_backward(*number, outputs);
    return result;
  }

 private:
  Module& module_;
};

// The module must outlive what this returns.
template <class Module>
requires std::derived_from<Module, torch::nn::Module> UnitCall<Module> unit(Module& module) {
  return UnitCall<Module>(module);
}
template <class Module>
UnitCall<Module> unit(const std::shared_ptr<Module>& module) {
  return UnitCall<Module>(*module);
}
template <class Module>
UnitCall<Module> unit(const torch::nn::ModuleHolder<Module>& holder) {
  return UnitCall<Module>(*holder.ptr());
}

}  // namespace ddp
