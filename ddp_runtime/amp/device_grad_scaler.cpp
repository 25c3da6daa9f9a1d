// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/amp/device_grad_scaler.h"

#include <limits>
#include <map>

#include "ddp_runtime/torch_compat.h"

namespace ddp::amp {
namespace {

// ATen's operator is known to take these on all devices.
bool has_operator(torch::ScalarType type) {
  return type == torch::kFloat32 || type == torch::kFloat16 || type == torch::kFloat64;
}

// The same, in a few more kernels, which round the factor to the gradients' type: a power of two,
// as scales usually are, remains exact. The largest magnitude of a tensor with a NaN is NaN.
void compose(const std::vector<torch::Tensor>& gradients, const torch::Tensor& factor,
             torch::Tensor& found) {
  const auto largest =
      torch::stack(at::_foreach_norm(gradients, std::numeric_limits<double>::infinity()));
  found.logical_or_(largest.isfinite().all().logical_not());
  torch_compat::multiply_each(gradients, factor);
}

}  // namespace

void check_and_multiply_each(const std::vector<torch::Tensor>& gradients,
                             const torch::Tensor& factor, torch::Tensor& found) {
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> by_type;
  for (const auto& gradient : gradients) {
    // The largest of no elements does not exist.
    if (gradient.numel() > 0) by_type[gradient.scalar_type()].push_back(gradient);
  }
  for (const auto& [type, of_type] : by_type) {
    if (has_operator(type)) {
      at::_amp_foreach_non_finite_check_and_unscale_(of_type, found, factor);
    } else {
      compose(of_type, factor, found);
    }
  }
}

DeviceGradScaler::DeviceGradScaler(const GradScaler& scaler, torch::Device device)
    : options_(scaler.options()),
      scale_(torch::full({}, scaler.scale(), torch::TensorOptions(torch::kFloat32).device(device))),
      updates_since_change_(torch::full({}, scaler.state().updates_since_change,
                                        torch::TensorOptions(torch::kInt32).device(device))) {}

// The reciprocal in double precision, like GradScaler's.
void DeviceGradScaler::unscale_each(const std::vector<torch::Tensor>& gradients,
                                    torch::Tensor& found) const {
  check_and_multiply_each(gradients, scale_.to(torch::kFloat64).reciprocal().to(torch::kFloat32),
                          found);
}

void DeviceGradScaler::update(const torch::Tensor& found) {
  const torch::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, updates_since_change_, found, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
}

}  // namespace ddp::amp
