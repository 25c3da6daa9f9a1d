// SPDX-License-Identifier: Apache-2.0
// All other operators: the CPU's operator on the same memory. Like at::native::cpu_fallback, which
// copies the tensors instead.
#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/fake_device/generator.h"
#include "tests/unit/fake_device/kernel.h"

namespace ddp::fake_device {
namespace {

bool is_device_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> tensors;
  if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      if (tensor) tensors.push_back(*tensor);
    }
  }
  return tensors;
}

// The device on which an operator runs.
c10::Device device_of_call(const std::vector<c10::IValue>& arguments) {
  for (const auto& argument : arguments) {
    for (const auto& tensor : tensors_of(argument)) {
      if (is_device_tensor(tensor)) return tensor.device();
    }
  }
  for (const auto& argument : arguments) {
    if (argument.isDevice() && argument.toDevice().type() == kType) return argument.toDevice();
  }
  return c10::Device(kType);
}

// The schemas of some operators do not say that they write an argument.
bool is_written(const c10::FunctionSchema& schema, std::size_t i) {
  const auto& argument = schema.arguments()[i];
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  static const std::set<std::string> kWriters = {"aten::native_batch_norm",
                                                 "aten::batch_norm_update_stats"};
  return kWriters.contains(schema.name()) &&
         (argument.name() == "running_mean" || argument.name() == "running_var");
}

bool takes_generator(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        schema_(op.schema()),
        stack_(stack),
        arguments_(torch::jit::pop(stack, schema_.arguments().size())),
        kernel_(schema_.name(), device_of_call(arguments_)) {}

  void run() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) stack_.push_back(to_host(i));
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    auto results = torch::jit::pop(stack_, schema_.returns().size());
    bool needs_host = shape_depends_on_values();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool has_tensors = results[i].isTensor() || results[i].isTensorList();
      needs_host = needs_host || !has_tensors;
      stack_.push_back(has_tensors ? to_device(i, results[i]) : results[i]);
    }
    kernel_.launch([this] { return again(); });
    if (needs_host) kernel_.wait_on_host();
  }

 private:
  // The operator on the real memory, for replays. Values that are on the host are captured.
  Kernel::Again again() {
    std::vector<c10::IValue> arguments;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      arguments.push_back(for_host(i, [](const at::Tensor& tensor, bool) {
        if (!tensor.defined()) return tensor;
        return is_device_tensor(tensor) ? Kernel::real_memory(tensor) : tensor.clone();
      }));
    }
    // The results that are not arguments, by their number.
    std::vector<std::vector<at::Tensor>> outputs(schema_.returns().size());
    const auto* const results = &stack_[stack_.size() - outputs.size()];
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (schema_.returns()[i].alias_info() != nullptr) continue;
      for (const auto& tensor : tensors_of(results[i])) {
        outputs[i].push_back(tensor.defined() ? Kernel::real_memory(tensor) : tensor);
      }
    }
    return [op = op_, arguments = std::move(arguments), outputs = std::move(outputs)] {
      const at::AutoDispatchBelowAutograd below;
      torch::jit::Stack stack = arguments;
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      const auto computed = torch::jit::pop(stack, outputs.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto values = tensors_of(computed[i]);
        for (std::size_t k = 0; k < outputs[i].size(); ++k) {
          if (outputs[i][k].defined()) outputs[i][k].copy_(values.at(k));
        }
      }
    };
  }

  at::Tensor host_tensor(const at::Tensor& tensor, bool written) {
    return written ? kernel_.writes(tensor) : kernel_.reads(tensor);
  }

  c10::IValue to_host(std::size_t i) {
    return for_host(
        i, [this](const at::Tensor& tensor, bool written) { return host_tensor(tensor, written); });
  }

  // An argument for the CPU's operator, whose tensors are those that `host` makes of its own.
  template <class Host>
  c10::IValue for_host(std::size_t i, const Host& host) const {
    const auto& value = arguments_[i];
    const bool written = is_written(schema_, i);
    if (value.isTensor()) return host(value.toTensor(), written);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const auto& tensor : value.toTensorVector()) list.push_back(host(tensor, written));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional(host(*tensor, written)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (value.isGenerator()) return host_generator(value.toGenerator());
    if (value.isNone() && takes_generator(schema_.arguments()[i])) {
      return host_generator(kernel_.stream().device_index());
    }
    return value;
  }

  c10::IValue to_device(std::size_t i, const c10::IValue& result) {
    const auto* alias = schema_.returns()[i].alias_info();
    if (alias != nullptr) {
      const auto& argument = arguments_.at(argument_of(*alias));
      if (alias->isWrite()) return argument;
      return view_of(argument, result);
    }
    if (result.isTensor()) return kernel_.keep(result.toTensor());
    c10::List<at::Tensor> list;
    for (const auto& tensor : result.toTensorVector()) list.push_back(kernel_.keep(tensor));
    return list;
  }

  std::size_t argument_of(const c10::AliasInfo& alias) const {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto* other = schema_.arguments()[i].alias_info();
      if (other != nullptr && other->beforeSets() == alias.beforeSets()) return i;
    }
    TORCH_CHECK(false, schema_.name(), " returns a view of none of its arguments");
  }

  c10::IValue view_of(const c10::IValue& argument, const c10::IValue& result) const {
    TORCH_CHECK(argument.isTensor(), schema_.name(), " is not supported by the fake device");
    const auto viewed = [&](const at::Tensor& view) {
      return argument.toTensor().as_strided(view.sizes(), view.strides(), view.storage_offset());
    };
    if (result.isTensor()) return viewed(result.toTensor());
    c10::List<at::Tensor> list;
    for (const auto& tensor : result.toTensorVector()) list.push_back(viewed(tensor));
    return list;
  }

  // Then a GPU must tell the host the number of elements.
  bool shape_depends_on_values() const {
    if (!op_.hasTag(at::Tag::dynamic_output_shape)) return false;
    if (schema_.name() != "aten::index") return true;
    for (const auto& tensor : tensors_of(arguments_.at(1))) {
      if (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte) return true;
    }
    return false;
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  std::vector<c10::IValue> arguments_;
  Kernel kernel_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, *stack).run();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// Other devices compose these of simpler operators, with other bits.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  m.impl("native_group_norm", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace
}  // namespace ddp::fake_device
