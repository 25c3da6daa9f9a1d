// SPDX-License-Identifier: Apache-2.0
// The differences between libtorch 1.13 and 2.x, in one place.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#define SLURM_DDP_TORCH_2 (TORCH_VERSION_MAJOR >= 2)
#define SLURM_DDP_TORCH_2_11 \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11))
#define SLURM_DDP_TORCH_2_4 \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4))

namespace ddp::torch_compat {

// Owns a node of the graph: a std::shared_ptr, from 2.13 on a c10::intrusive_ptr.
using NodePointer =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<torch::Tensor>()));

// A hook that runs after a gradient has been accumulated into a parameter. From 2.1 on the class
// requires a second function, for compiled autograd, which C++ programs do not use.
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

// Autocast for one kind of device. 2.4 renamed the functions and added the device as an argument.
inline bool autocast_enabled(torch::DeviceType device) {
#if SLURM_DDP_TORCH_2_4
  return at::autocast::is_autocast_enabled(device);
#else
  return device == torch::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
#endif
}

inline torch::ScalarType autocast_type(torch::DeviceType device) {
#if SLURM_DDP_TORCH_2_4
  return at::autocast::get_autocast_dtype(device);
#else
  return device == torch::kCPU ? at::autocast::get_autocast_cpu_dtype()
                               : at::autocast::get_autocast_gpu_dtype();
#endif
}

inline void set_autocast(torch::DeviceType device, bool enabled, torch::ScalarType type) {
#if SLURM_DDP_TORCH_2_4
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, type);
#else
  if (device == torch::kCPU) {
    at::autocast::set_cpu_enabled(enabled);
    at::autocast::set_autocast_cpu_dtype(type);
  } else {
    at::autocast::set_enabled(enabled);
    at::autocast::set_autocast_gpu_dtype(type);
  }
#endif
}

// Attention in which a position sees itself and those before it. q, k, v and the result: [n
// samples, h heads, t positions, d]. 2.x provides it as one operator, which on most devices never
// holds the t x t scores of all heads at once; with 1.13 it is composed of simpler operators.
inline torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k,
                                      const torch::Tensor& v) {
#if SLURM_DDP_TORCH_2
  return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
#else
  const auto n = q.size(0);
  const auto h = q.size(1);
  const auto t = q.size(2);
  const auto d = q.size(3);
  const auto floats = q.options().requires_grad(false);
  const auto mask = torch::full({t, t}, -std::numeric_limits<float>::infinity(), floats).triu(1);
  const auto flat = [&](const torch::Tensor& x) { return x.reshape({n * h, t, d}); };
  const auto scores = torch::baddbmm(mask, flat(q), flat(k).transpose(1, 2), 1,
                                     1 / std::sqrt(static_cast<double>(d)));
  return torch::bmm(torch::softmax(scores, -1), flat(v)).view({n, h, t, d});
#endif
}

// The key under which an optimizer keeps the state of a parameter: the address of the tensor's
// implementation, as text in 1.13. It has no meaning in another process.
inline auto state_key(const torch::Tensor& parameter) {
#if SLURM_DDP_TORCH_2
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

// Whether tensors on a device can be communicated.
#if SLURM_DDP_TORCH_2_11
inline constexpr bool kSupportsDevices = true;
#else
inline constexpr bool kSupportsDevices = false;
#endif

// This thread's current stream of a device, as the device's own library knows it: a cudaStream_t
// for CUDA. Throws c10::Error if the device has no driver in this process. Devices need 2.11.
inline void* current_stream(torch::Device device) {
#if SLURM_DDP_TORCH_2_11
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
#else
  throw std::runtime_error("tensors on " + device.str() + " need PyTorch 2.11 or newer");
#endif
}

// Waits until the work before the event has run. Devices need 2.11.
inline void synchronize(const c10::Event& event) {
#if SLURM_DDP_TORCH_2_11
  event.synchronize();
#else
  static_cast<void>(event);
#endif
}

// An event whose time can be read. Other events cost the device less.
inline constexpr auto kTimedEvent = c10::EventFlag::BACKEND_DEFAULT;

// The time from one timed event to another, negative if it is the earlier one. The device must have
// reached both. Devices need 2.11.
inline double milliseconds(const c10::Event& from, const c10::Event& to) {
#if SLURM_DDP_TORCH_2_11
  return from.elapsedTime(to);
#else
  static_cast<void>(from);
  static_cast<void>(to);
  return 0;
#endif
}

// Copies each tensor of `from` into the tensor of `to` with the same index, all of one shape and
// device. On a GPU, that is one kernel.
inline void copy_each(at::TensorList to, at::TensorList from) {
#if SLURM_DDP_TORCH_2
  at::_foreach_copy_(to, from);
#else
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
#endif
}

// The 2-norms, as float32 scalars. On a GPU, these are a few kernels.
inline std::vector<torch::Tensor> norm_of_each_in_float32(at::TensorList tensors) {
#if SLURM_DDP_TORCH_2_4
  return at::_foreach_norm(tensors, 2, torch::kFloat32);
#else
  std::vector<torch::Tensor> norms;
  for (const auto& tensor : tensors) {
    norms.push_back(at::linalg_vector_norm(tensor, 2, c10::nullopt, false, torch::kFloat32));
  }
  return norms;
#endif
}

// Multiplies each tensor by a factor on the same device. On a GPU, that is one kernel.
inline void multiply_each(at::TensorList tensors, const torch::Tensor& factor) {
#if SLURM_DDP_TORCH_2_4
  at::_foreach_mul_(tensors, factor);
#else
  for (const auto& tensor : tensors) tensor.mul_(factor);
#endif
}

}  // namespace ddp::torch_compat
