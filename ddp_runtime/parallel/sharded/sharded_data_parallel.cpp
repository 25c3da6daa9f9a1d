// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"

#include "ddp_runtime/parallel/replica/wrapped_parameters.h"
#include "ddp_runtime/parallel/sharded/shard_exchange.h"
#include "ddp_runtime/parallel/sharded/shard_requirements.h"

namespace ddp {
namespace {

// No two ranks have the same parameters.
DataParallelOptions without_comparison(const ShardOptions& options,
                                       const torch::nn::Module& module) {
  auto result = options.data_parallel;
  if (kept_with(options, module) == FlatShard::Kept::part) result.check_parameters_every = 0;
  return result;
}

}  // namespace

ShardedDataParallel::ShardedDataParallel(torch::nn::Module& module, comm::Group& group,
                                         const ShardOptions& options)
    : DistributedDataParallel(module, group, without_comparison(options, module),
                              [&](const WrappedParameters& parameters) {
                                require_same_options(group, options);
                                const auto all = parameters.all();
                                return std::make_unique<ShardExchange>(
                                    group, module, std::vector(all.begin(), all.end()), options);
                              }),
      exchange_(dynamic_cast<ShardExchange&>(gradients())) {}

ShardedDataParallel::~ShardedDataParallel() = default;

ParameterShards& ShardedDataParallel::shards() noexcept {
  return exchange_;
}

WholeParameters::WholeParameters(ShardedDataParallel& replica) : exchange_(replica.exchange_) {
  exchange_.whole().gather_on_request();
}

WholeParameters::~WholeParameters() {
  exchange_.whole().release_on_request();
}

void WholeParameters::keep_changes() {
  exchange_.whole().keep_changes();
}

}  // namespace ddp
