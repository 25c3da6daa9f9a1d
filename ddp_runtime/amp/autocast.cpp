#include "ddp_runtime/amp/autocast.h"

#include <fmt/format.h>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/parallel/torch_compat.h"

namespace ddp::amp {

Precision parse_precision(const std::string& name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "bf16") return Precision::bf16;
  throw UsageError(fmt::format("unknown precision '{}'; use fp32 or bf16", name));
}

AutocastGuard::AutocastGuard(torch::DeviceType device, Precision precision)
    : device_(device),
      was_enabled_(torch_compat::autocast_enabled(device)),
      previous_type_(torch_compat::autocast_type(device)) {
  torch_compat::set_autocast(device, precision != Precision::fp32,
                             precision == Precision::bf16 ? torch::kBFloat16 : previous_type_);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  // The cache of cast parameters is valid within one forward pass only.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  torch_compat::set_autocast(device_, was_enabled_, previous_type_);
}

}  // namespace ddp::amp
