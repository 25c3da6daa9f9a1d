// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/amp/autocast.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::amp {
namespace {

torch::ScalarType type_of(Precision precision, torch::ScalarType if_full) {
  switch (precision) {
    case Precision::fp32:
      break;
    case Precision::bf16:
      return torch::kBFloat16;
    case Precision::fp16:
      return torch::kHalf;
  }
  return if_full;
}

}  // namespace

Precision parse_precision(const std::string& name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "bf16") return Precision::bf16;
  if (name == "fp16") return Precision::fp16;
  throw UsageError(fmt::format("unknown precision '{}'; use fp32, bf16 or fp16", name));
}

// Tries the operation, which is more reliable than a list of versions: libtorch added support
// kernel by kernel.
void require_precision(torch::DeviceType device, Precision precision) {
  if (precision == Precision::fp32) return;
  try {
    const auto ones = torch::ones(
        {2, 2}, torch::TensorOptions(device).dtype(type_of(precision, torch::kFloat32)));
    torch::mm(ones, ones);
  } catch (const c10::Error&) {
    throw UsageError(fmt::format(
        "{} arithmetic is not supported on this device by libtorch {}; use --precision {}",
        precision == Precision::fp16 ? "fp16" : "bf16", TORCH_VERSION,
        precision == Precision::fp16 ? "bf16" : "fp32"));
  }
}

AutocastGuard::AutocastGuard(torch::DeviceType device, Precision precision)
    : device_(device),
      was_enabled_(torch_compat::autocast_enabled(device)),
      previous_type_(torch_compat::autocast_type(device)) {
  torch_compat::set_autocast(device, precision != Precision::fp32,
                             type_of(precision, previous_type_));
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  // The cache of cast parameters is valid only within one forward pass.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  torch_compat::set_autocast(device_, was_enabled_, previous_type_);
}

}  // namespace ddp::amp
