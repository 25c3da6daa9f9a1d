// SPDX-License-Identifier: Apache-2.0
// Operators that are not the CPU's operator on the same memory: those that make tensors and views,
// copies between devices, and those that libtorch names differently on devices that it does not
// know.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Event.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/unit/fake_device/kernel.h"
#include "tests/unit/fake_device/memory.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

using Sizes = at::IntArrayRef;
using MaybeTensor = std::optional<at::Tensor>;

c10::DeviceGuard guard_of(const std::optional<c10::Device>& wanted) {
  return c10::DeviceGuard(wanted.value_or(c10::Device(kType)));
}

at::Tensor empty(Sizes size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<c10::Device> wanted, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const auto guard = guard_of(wanted);
  return at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(type),
                                   format);
}

at::Tensor empty_strided(Sizes size, Sizes stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<c10::Device> wanted,
                         std::optional<bool>) {
  const auto guard = guard_of(wanted);
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys,
                                           c10::dtype_or_default(type));
}

// ---- views and sizes: no kernels, except for a resize that moves the memory

at::Tensor as_strided(const at::Tensor& self, Sizes size, Sizes stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, Sizes size) {
  return at::native::view(self, size);
}

at::Tensor reshape_alias(const at::Tensor& self, Sizes size, Sizes stride) {
  return at::native::_reshape_alias(self, size, stride);
}

const at::Tensor& resize(const at::Tensor& self, Sizes size,
                         std::optional<at::MemoryFormat> format) {
  Kernel kernel("aten::resize_", self.device());
  kernel.writes(self).resize_(size, format);
  kernel.launch();
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, Sizes size,
                        Sizes stride) {
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}

at::Tensor& set_to_whole_storage(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {count}, {1});
}

at::Tensor& set_to_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Tensor& set_to_nothing(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, device_allocator()->allocate(0),
                       device_allocator(), true);
  return set_storage(self, std::move(storage), 0, {0}, {1});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  record_use(self.storage().data_ptr(), stream);
}

// ---- copies

// A copy between the host and the device waits on the host unless the program asks that it does
// not, which pageable memory does not allow.
bool copy_waits(const at::Tensor& host, bool non_blocking) {
  return !non_blocking || !is_pinned(host.const_data_ptr());
}

// On the stream of the source, in the order of both streams.
void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  for (const auto& tensor : {from, to}) {
    TORCH_CHECK(!recording_on(tensor.device().index()),
                "the fake device cannot capture a copy between devices");
  }
  const auto source = current_stream(from.device().index());
  const auto target = current_stream(to.device().index());
  c10::Event before(kType);
  before.record(target);
  before.block(source);
  Kernel kernel("a copy between devices", from.device());
  const auto values = kernel.reads(from);
  {
    Kernel there("a copy between devices", to.device());
    there.writes(to).copy_(values);
  }
  kernel.launch();
  launch(source, "a copy between devices", {}, {{to.data_ptr(), to.nbytes()}});
  c10::Event after(kType);
  after.record(source);
  after.block(target);
}

// A copy to pinned memory for which the program does not wait: the memory has other values until
// the stream has come to the copy, and is not freed before.
void copy_later(Kernel& kernel, const at::Tensor& values, const at::Tensor& to) {
  constexpr int kOther = 0xee;
  const auto source = values.clone();
  std::memset(to.data_ptr(), kOther, to.nbytes());
  kernel.launch({}, [source, to] { std::memcpy(to.data_ptr(), source.data_ptr(), to.nbytes()); });
}

// A replay uses the memory of the host that the program gave to the captured copy.
void require_page_locked(const at::Tensor& memory) {
  const auto* data = memory.const_data_ptr();
  TORCH_CHECK(is_pinned(data) || is_of_device(data),
              "the replay of a copy uses page-locked memory that has been freed");
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  if (self.device().type() == kType && to.device().type() == kType &&
      self.device() != to.device()) {
    copy_between_devices(self, to);
    return to;
  }
  const bool to_host = to.is_cpu();
  Kernel kernel(to_host         ? "a copy to the host"
                : self.is_cpu() ? "a copy from the host"
                                : "a copy",
                to_host ? self.device() : to.device());
  const auto values = kernel.reads(self);
  const bool is_plain = to.is_contiguous() && values.is_contiguous() &&
                        to.scalar_type() == values.scalar_type() && to.sizes() == values.sizes();
  if (to_host && is_plain && !copy_waits(to, non_blocking) && !kernel.is_captured()) {
    copy_later(kernel, values, to);
    return to;
  }
  kernel.writes(to).copy_(values);
  kernel.launch([&] {
    return [from = Kernel::real_memory(self), target = Kernel::real_memory(to)] {
      require_page_locked(from);
      require_page_locked(target);
      target.copy_(from);
    };
  });
  if (to_host && copy_waits(to, non_blocking)) kernel.wait_on_host();
  if (self.is_cpu() && copy_waits(self, non_blocking)) kernel.wait_on_host();
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

// ---- operators with names of their own

// What a convolution needs besides its tensors.
struct Geometry {
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  bool transposed;
  std::vector<int64_t> output_padding;
  int64_t groups;
};

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const MaybeTensor& bias,
                       Sizes stride, Sizes padding, Sizes dilation, bool transposed,
                       Sizes output_padding, int64_t groups) {
  const Geometry geometry{stride.vec(), padding.vec(),        dilation.vec(),
                          transposed,   output_padding.vec(), groups};
  const auto compute = [g = geometry](const at::Tensor& x, const at::Tensor& w,
                                      const MaybeTensor& b) {
    return at::convolution(x, w, b, g.stride, g.padding, g.dilation, g.transposed, g.output_padding,
                           g.groups);
  };
  Kernel kernel("aten::convolution", input.device());
  const auto result = kernel.keep(compute(kernel.reads(input), kernel.reads(weight),
                                          bias ? MaybeTensor(kernel.reads(*bias)) : std::nullopt));
  kernel.launch([&] {
    return [compute, x = Kernel::real_memory(input), w = Kernel::real_memory(weight),
            b = bias ? MaybeTensor(Kernel::real_memory(*bias)) : std::nullopt,
            out = Kernel::real_memory(result)] { out.copy_(compute(x, w, b)); };
  });
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, Sizes stride,
    Sizes padding, Sizes dilation, bool transposed, Sizes output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  const Geometry geometry{stride.vec(), padding.vec(),        dilation.vec(),
                          transposed,   output_padding.vec(), groups};
  const int64_t outputs = transposed ? weight.size(1) * groups : weight.size(0);
  const auto compute = [g = geometry, outputs, wanted](const at::Tensor& dy, const at::Tensor& x,
                                                       const at::Tensor& w) {
    const auto [dx, dw, db] =
        at::convolution_backward(dy, x, w, at::OptionalIntArrayRef({outputs}), g.stride, g.padding,
                                 g.dilation, g.transposed, g.output_padding, g.groups, wanted);
    return std::array{dx, dw, db};
  };
  Kernel kernel("aten::convolution_backward", input.device());
  auto results = compute(kernel.reads(gradient), kernel.reads(input), kernel.reads(weight));
  for (auto& result : results) result = kernel.keep(result);
  kernel.launch([&] {
    std::array<at::Tensor, 3> places;
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = Kernel::real_memory(results[i]);
    return [compute, dy = Kernel::real_memory(gradient), x = Kernel::real_memory(input),
            w = Kernel::real_memory(weight), places] {
      const auto values = compute(dy, x, w);
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i].defined()) places[i].copy_(values[i]);
      }
    };
  });
  return {results[0], results[1], results[2]};
}

// A tensor of the CPU that differs from `tensor` in its values.
at::Tensor like_on_cpu(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU))
      .set_requires_grad(tensor.requires_grad());
}

// The operator that the CPU uses for attention.
int64_t choose_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const MaybeTensor& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped) {
  const MaybeTensor m = mask ? MaybeTensor(like_on_cpu(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(like_on_cpu(q), like_on_cpu(k), like_on_cpu(v), m, dropout, causal,
                               scale, grouped);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("resize_", resize);
  m.impl("set_", set_to_nothing);
  m.impl("set_.source_Storage", set_to_whole_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_to_tensor);
  m.impl("record_stream", record_stream);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("_fused_sdp_choice", choose_attention);
}

}  // namespace
}  // namespace ddp::fake_device

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &ddp::fake_device::choose_attention);
}
