// SPDX-License-Identifier: Apache-2.0
// The way of a batch to a device: a copy from pinned memory does not stop the host, but the
// host waits for a copy from other memory.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

// In a loader thread: copies the batch to pinned memory, unless `device` is the CPU.
inline Batch pin_for(torch::Device device, Batch batch) {
  if (device.is_cpu()) return batch;
  const c10::DeviceGuard guard(device);  // or the thread would start the driver on another GPU
  return for_each_tensor(batch, [](const torch::Tensor& t) { return t.pin_memory(); });
}

// Afterwards `batch` may be released at once: its memory is not used again before the copy has run.
inline Batch to_device(torch::Device device, const Batch& batch) {
  return for_each_tensor(
      batch, [&](const torch::Tensor& t) { return t.to(device, /*non_blocking=*/true); });
}

}  // namespace ddp::data
