// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/offload/host_state.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {
namespace {

c10::Stream stream_of_copies(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

}  // namespace

HostState::Streams::Streams(torch::Device device)
    : in(stream_of_copies(device)),
      out(stream_of_copies(device)),
      all_stored(device.type()),
      slots{Slot(device), Slot(device), Slot(device)} {}

torch::Tensor HostState::zeros_like(const torch::Tensor& values) {
  if (values.numel() < kLeastValues) return torch::zeros_like(values).detach();
  // empty_like() keeps the strides.
  auto zeros =
      torch::empty_like(values.detach(), torch::TensorOptions(torch::kCPU).pinned_memory(true));
  return zeros.zero_();
}

torch::Tensor HostState::moved(const torch::Tensor& tensor) {
  if (!tensor.defined() || (tensor.is_cpu() && tensor.is_pinned()) ||
      tensor.layout() != torch::kStrided || tensor.numel() < kLeastValues) {
    return tensor;
  }
  auto copy = zeros_like(tensor);
  return copy.copy_(tensor);
}

void HostState::load(HostWindow& window, Slot& slot, torch::Device device) {
  std::int64_t count = 0;
  for (const auto& range : window) count += range.on_host.numel();
  const auto current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const auto type = window.front().on_host.scalar_type();
  if (!slot.memory.defined() || slot.memory.numel() < count || slot.memory.scalar_type() != type) {
    slot.memory = torch::empty({count}, torch::TensorOptions(type).device(device));
    // An error may end the run while they copy.
    slot.memory.record_stream(streams_->in);
    slot.memory.record_stream(streams_->out);
    // Earlier work on the current stream may use this memory, which others have freed.
    slot.computed.record(current);
    slot.computed.block(streams_->in);
  }
  slot.stored.block(streams_->in);
  {
    const c10::StreamGuard guard(streams_->in);
    std::int64_t first = 0;
    for (const auto& range : window) {
      *range.on_device = slot.memory.narrow(0, first, range.on_host.numel());
      range.on_device->copy_(range.on_host, /*non_blocking=*/true);
      first += range.on_host.numel();
    }
  }
  slot.loaded.record(streams_->in);
  slot.loaded.block(current);
}

void HostState::store(const HostWindow& window, Slot& slot) {
  const auto device = streams_->out.device();
  slot.computed.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  slot.computed.block(streams_->out);
  const c10::StreamGuard guard(streams_->out);
  for (const auto& range : window) {
    auto on_host = range.on_host;
    on_host.copy_(*range.on_device, /*non_blocking=*/true);
  }
  slot.stored.record(streams_->out);
}

void HostState::run_windows(torch::Device device, std::span<HostWindow> windows,
                            const std::function<void(std::size_t window)>& compute) {
  const torch::NoGradGuard no_grad;
  if (!streams_) streams_.emplace(device);
  if (std::exchange(after_all_stored_, false)) streams_->all_stored.block(streams_->in);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    auto& slot = streams_->slots[i % streams_->slots.size()];
    load(windows[i], slot, device);
    compute(i);
    store(windows[i], slot);
    streams_->all_stored.record(streams_->out);
  }
}

void HostState::await() const {
  if (streams_) torch_compat::synchronize(streams_->all_stored);
}

}  // namespace ddp::optim
