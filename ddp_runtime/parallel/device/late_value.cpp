// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/device/late_value.h"

#include "ddp_runtime/torch_compat.h"

namespace ddp {

struct LateTensor::Copy {
  torch::Tensor pinned;
  c10::Event event;
};

LateTensor::LateTensor(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const auto device = tensor.device();
  auto pinned =
      torch::empty(tensor.sizes(),
                   tensor.options().device(torch::kCPU).requires_grad(false).pinned_memory(true));
  pinned.copy_(tensor.detach(), /*non_blocking=*/true);
  const c10::impl::VirtualGuardImpl streams(device.type());
  copy_ = std::make_unique<Copy>(Copy{std::move(pinned), c10::Event(device.type())});
  copy_->event.record(streams.getStream(device));
}

LateTensor::LateTensor(LateTensor&&) noexcept = default;
LateTensor& LateTensor::operator=(LateTensor&&) noexcept = default;
LateTensor::~LateTensor() = default;

bool LateTensor::ready() const {
  return copy_->event.query();
}

const torch::Tensor& LateTensor::value() const {
  if (!ready()) torch_compat::synchronize(copy_->event);
  return copy_->pinned;
}

LateValue::LateValue(const torch::Tensor& scalar) {
  if (scalar.is_cpu() || !torch_compat::kSupportsDevices) {
    const torch::NoGradGuard no_grad;
    value_ = scalar.item<double>();
    return;
  }
  copy_.emplace(scalar.detach().reshape({}));
}

double LateValue::value() {
  if (!copy_) return value_;
  value_ = copy_->value().item<double>();
  copy_.reset();
  return value_;
}

}  // namespace ddp
