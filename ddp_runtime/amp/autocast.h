// Mixed precision for a scope: what torch.autocast is in Python, libtorch leaves to its users.
#pragma once

#include <torch/torch.h>

#include <string>

namespace ddp::amp {

enum class Precision : std::uint8_t { fp32, bf16, fp16 };

// Throws UsageError naming the precisions there are.
Precision parse_precision(const std::string& name);

// Throws UsageError if the device cannot multiply in that precision with this libtorch.
void require_precision(torch::DeviceType device, Precision precision);

// While it lives, operations that gain from it (matrix products, convolutions) run in `precision`,
// the others in float32; the parameters and their gradients stay float32. Guards nest. fp32 turns
// autocast off inside another guard. Wrap the forward pass and the loss, not backward. With fp16,
// use a GradScaler.
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
