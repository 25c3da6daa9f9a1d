// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/loss_scaling.h"

#include <bit>

namespace ddp::train {

std::optional<amp::GradScaler> make_scaler(const TrainOptions& options) {
  if (options.loss_scale == 0 && options.precision != amp::Precision::fp16) return std::nullopt;
  amp::GradScalerOptions scaling;
  if (options.loss_scale > 0) scaling.initial_scale = static_cast<float>(options.loss_scale);
  return amp::GradScaler(scaling);
}

std::int64_t with_scale(std::int64_t tag, const std::optional<amp::GradScaler>& scaler) {
  if (!scaler) return tag;
  return tag ^ (static_cast<std::int64_t>(std::bit_cast<std::int32_t>(scaler->scale())) << 32);
}

}  // namespace ddp::train
