// SPDX-License-Identifier: Apache-2.0
// How much memory a rank's weights, gradients, optimizer and activations have taken at once.
//
// Note [Measured memory]
// The kernel knows the peak of a process's memory, with the memory that it shares with other ranks
// in full. So the peak of what is its own is the kernel's peak without shared memory and without
// files, and its share of the shared memory is what it has at the end, which buffers of the
// exchange keep from the first step on. From that sum, what the process had before is subtracted,
// except the model. Memory that the heap of the C library keeps after it was freed counts.
#pragma once

#include <cstdint>
#include <optional>

namespace ddp::train {

class StepMemory {
 public:
  // Before anything but the model is made for a training. `model_bytes`: its memory on the host.
  explicit StepMemory(std::int64_t model_bytes);

  // Before the first step.
  void begin();
  // The largest since begin(), in bytes; nullopt if the kernel does not tell, and before begin().
  // With several ranks in one process, that of all.
  std::optional<std::int64_t> peak() const;

 private:
  std::optional<std::int64_t> before_;
  bool has_begun_ = false;
};

}  // namespace ddp::train
