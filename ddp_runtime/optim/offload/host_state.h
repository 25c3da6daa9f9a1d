// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer whose parameters are on a GPU in memory of the host.
//
//   optimizer.offload_state(std::make_unique<ddp::optim::HostState>());
//
// Note [State on the host]
// The tensors of the state are in page-locked memory of the host. A step goes through the
// parameters in windows: one stream copies the state of a window to the GPU, the stream of the step
// updates the window, and another stream copies the state back, so that the bus works in both
// directions beside the update (ZeRO-Offload: Ren et al., 2021; its update is on the host). The
// host enqueues all of this without waiting. The first windows are copied while the GPU is still
// busy with backward. A program that reads the tensors must call await() before. Masters of short
// weights stay on the GPU, and so does the state of small parameters. For parameters that the fused
// operators do not update, libtorch's step has the state on the GPU for its duration.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ddp::optim {

// A vector of the host that a window needs.
struct HostRange {
  torch::Tensor on_host;
  torch::Tensor* on_device;  // where the step finds the copy
};
using HostWindow = std::vector<HostRange>;  // of one type, at least one

class HostState {
 public:
  // Tensors with fewer values are not on the host.
  static constexpr std::int64_t kLeastValues = 16384;
  // Elements of the parameters that are updated together. With Adam, 32 MiB of state.
  static constexpr std::int64_t kWindow = 1 << 22;

  explicit HostState(std::int64_t window = kWindow) : window_(window) {}

  std::int64_t window() const noexcept { return window_; }

  // A tensor with zeros, with the type, sizes and order of `values`, which are on a device: on the
  // host, or, with few values, on that device. Throws c10::Error if the host has no memory.
  static torch::Tensor zeros_like(const torch::Tensor& values);

  // Itself with few values, or if it is in page-locked memory; otherwise a copy there.
  static torch::Tensor moved(const torch::Tensor& tensor);

  // The next windows may have values in common with those before, of an earlier step.
  void begin_step() noexcept { after_all_stored_ = true; }
  // Calls `compute` with the number of each window, in order, after its ranges are on the device as
  // far as this thread's current stream can tell, and copies them back behind what `compute` has
  // put on that stream. Always with the same device. No values may be in two windows of a step.
  // Does not wait for the device.
  void run_windows(torch::Device device, std::span<HostWindow> windows,
                   const std::function<void(std::size_t window)>& compute);
  // Waits until the host has the values of all steps.
  void await() const;

 private:
  // Memory of the device for one window.
  struct Slot {
    explicit Slot(torch::Device device)
        : loaded(device.type()), computed(device.type()), stored(device.type()) {}

    torch::Tensor memory;
    c10::Event loaded;
    c10::Event computed;
    c10::Event stored;
  };
  struct Streams {
    explicit Streams(torch::Device device);

    c10::Stream in;
    c10::Stream out;
    c10::Event all_stored;
    std::array<Slot, 3> slots;
  };

  void load(HostWindow& window, Slot& slot, torch::Device device);
  void store(const HostWindow& window, Slot& slot);

  std::int64_t window_;
  std::optional<Streams> streams_;  // since the first step
  bool after_all_stored_ = false;   // whether the next window comes after all earlier ones
};

}  // namespace ddp::optim
