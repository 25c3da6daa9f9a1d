// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/channels_last.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {

torch::Tensor in_channels_last(const torch::Tensor& values) {
  return values.dim() == 4 ? values.contiguous(torch::MemoryFormat::ChannelsLast) : values;
}

void store_channels_last(torch::nn::Module& module, const std::string& model) {
  bool any = false;
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    any = true;
    parameter.set_data(in_channels_last(parameter.detach()));
  }
  if (any) return;
  throw UsageError(fmt::format(
      "--channels-last is for models with two-dimensional convolutions, and '{}' has none; leave "
      "it out",
      model));
}

}  // namespace ddp::train
