// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/shard_mode.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/sharded/shard_requirements.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"

namespace ddp::train {

Shard parse_shard(const std::string& name) {
  for (const auto shard :
       {Shard::none, Shard::optimizer, Shard::gradients, Shard::parameters, Shard::hybrid}) {
    if (name == shard_mode_name(shard)) return shard;
  }
  throw UsageError(fmt::format(
      "--shard must be none, optimizer, gradients, parameters or hybrid, not '{}'", name));
}

std::string shard_mode_name(Shard shard) {
  return name_of_shard(shard);
}

std::unique_ptr<DistributedDataParallel> make_replica(comm::Group& group, torch::nn::Module& module,
                                                      const TrainOptions& options,
                                                      const DataParallelOptions& parallel) {
  if (options.shard == Shard::none || options.shard == Shard::optimizer) {
    return std::make_unique<DistributedDataParallel>(module, group, parallel);
  }
  return std::make_unique<ShardedDataParallel>(
      module, group,
      ShardOptions{
          .shard = options.shard,
          .units = options.shard == Shard::gradients ? std::vector<std::string>() : options.units,
          .reshard_after_forward = options.reshard_after_forward,
          .reduce_once = options.reduce_once,
          .build = options.build.get(),
          .data_parallel = parallel});
}

std::unique_ptr<torch::optim::Optimizer> shard_if_wanted(
    std::unique_ptr<torch::optim::Optimizer> optimizer, DistributedDataParallel& replica,
    const TrainOptions& options) {
  if (options.shard == Shard::none) return optimizer;
  if (auto* const sharded = dynamic_cast<ShardedDataParallel*>(&replica)) {
    return std::make_unique<ShardedOptimizer>(std::move(optimizer), *sharded);
  }
  return std::make_unique<ShardedOptimizer>(std::move(optimizer), replica.group());
}

}  // namespace ddp::train
