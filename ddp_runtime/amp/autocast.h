// SPDX-License-Identifier: Apache-2.0
// Mixed precision within a scope: the counterpart of Python's torch.autocast, which libtorch lacks.
#pragma once

#include <torch/torch.h>

#include <string>

namespace ddp::amp {

enum class Precision : std::uint8_t { fp32, bf16, fp16 };

// Throws UsageError listing the available precisions.
Precision parse_precision(const std::string& name);

// Throws UsageError if this libtorch cannot multiply in that precision on the device.
void require_precision(torch::DeviceType device, Precision precision);

// While a guard is alive, operations that benefit (matrix products, convolutions) run in
// `precision`, and all others in float32; the parameters and their gradients stay float32. Guards
// nest. fp32 turns autocast off inside another guard. Wrap the forward pass and the loss, not
// backward. With fp16, use a GradScaler.
class AutocastGuard {
 public:
  AutocastGuard(torch::DeviceType device, Precision precision);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  ~AutocastGuard();

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType previous_type_;
};

}  // namespace ddp::amp
