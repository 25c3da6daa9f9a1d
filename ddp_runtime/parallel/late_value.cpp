// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/late_value.h"

#include "ddp_runtime/torch_compat.h"

namespace ddp {

struct LateValue::Copy {
  torch::Tensor pinned;
  c10::Event event;
};

LateValue::LateValue(const torch::Tensor& scalar) {
  const torch::NoGradGuard no_grad;
  const auto device = scalar.device();
  if (device.is_cpu() || !torch_compat::kSupportsDevices) {
    value_ = scalar.item<double>();
    return;
  }
  auto pinned = torch::empty(
      {}, scalar.options().device(torch::kCPU).requires_grad(false).pinned_memory(true));
  pinned.copy_(scalar.detach().reshape({}), /*non_blocking=*/true);
  const c10::impl::VirtualGuardImpl streams(device.type());
  copy_ = std::make_unique<Copy>(Copy{std::move(pinned), c10::Event(device.type())});
  copy_->event.record(streams.getStream(device));
}

LateValue::LateValue(LateValue&&) noexcept = default;
LateValue& LateValue::operator=(LateValue&&) noexcept = default;
LateValue::~LateValue() = default;

bool LateValue::ready() const {
  return copy_ == nullptr || copy_->event.query();
}

double LateValue::value() {
  if (copy_ == nullptr) return value_;
  if (!copy_->event.query()) torch_compat::synchronize(copy_->event);
  value_ = copy_->pinned.item<double>();
  copy_.reset();
  return value_;
}

}  // namespace ddp
