// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/shard_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"

namespace ddp::train {
namespace {

// The device decides whether a step is skipped, which a ShardedOptimizer does not know.
bool skips_on_device(torch::Device device, const TrainOptions& options) {
  return !device.is_cpu() && (options.on_nan == OnNan::skip || options.loss_scale > 0 ||
                              options.precision == amp::Precision::fp16);
}

// The trainer keeps float32 masters of these, also if the program has converted the module itself.
bool has_short_weights(const torch::optim::Optimizer& optimizer) {
  return std::ranges::any_of(optimizer.param_groups(), [](const auto& group) {
    return std::ranges::any_of(group.params(), [](const torch::Tensor& parameter) {
      return parameter.scalar_type() == torch::kBFloat16 || parameter.scalar_type() == torch::kHalf;
    });
  });
}

}  // namespace

Shard parse_shard(const std::string& name) {
  if (name == "none") return Shard::none;
  if (name == "optimizer") return Shard::optimizer;
  throw UsageError(fmt::format("--shard must be none or optimizer, not '{}'", name));
}

std::string shard_mode_name(Shard shard) {
  return shard == Shard::none ? "none" : "optimizer";
}

std::unique_ptr<torch::optim::Optimizer> shard_if_wanted(
    std::unique_ptr<torch::optim::Optimizer> optimizer, comm::Group& group, torch::Device device,
    const TrainOptions& options) {
  if (options.shard == Shard::none) return optimizer;
  const char* const hindrance =
      has_short_weights(*optimizer) ? "bf16 weights (--param-type)"
      : skips_on_device(device, options)
          ? "loss scaling and skipped steps on a GPU (--loss-scale, fp16, --on-nan skip)"
          : nullptr;
  if (hindrance != nullptr) {
    throw UsageError(fmt::format(
        "--shard optimizer does not go together with {} yet; leave out one of them", hindrance));
  }
  return std::make_unique<ShardedOptimizer>(std::move(optimizer), group);
}

}  // namespace ddp::train
