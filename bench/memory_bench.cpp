// SPDX-License-Identifier: Apache-2.0
#include "bench/memory_bench.h"

#include <malloc.h>

#include <algorithm>
#include <functional>

#include "bench/child_process.h"
#include "bench/training_loop.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/profile/process_memory.h"
#include "ddp_runtime/train/memory/training_sizes.h"
#include "ddp_runtime/train/options/shard_mode.h"

namespace ddp::bench {
namespace {

using nlohmann::json;

// glibc's heap cannot reuse the space of a freed tensor while a small block after it is still in
// use. So by chance it keeps several freed tensors, 0 to 40 MiB here, in either loop. If every
// tensor is a separate mapping, the kernel counts only memory in use.
void count_only_what_is_held() {
  constexpr int kLarge = 128 << 10;
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, kLarge);
}

// Memory growth during training; `prepare` returns a function that runs one step. Gradients,
// buckets and optimizer state all exist from the second step on.
json growth(const std::function<void()>& prepare, const std::function<void()>& step) {
  count_only_what_is_held();
  profile::reset_peak_memory();
  const auto before = profile::process_memory();
  const auto grown = [&](std::int64_t bytes) { return bytes - before.anonymous - before.shared; };
  // Does not count library pages, which depend on the code that happens to run.
  const auto peak = [&] {
    const auto now = profile::process_memory();
    return grown(now.peak - now.file);
  };
  constexpr int kSteps = 3;
  prepare();
  for (int i = 0; i < kSteps; ++i) step();
  const auto after = profile::process_memory();
  const auto overall = peak();
  profile::reset_peak_memory();
  for (int i = 0; i < kSteps; ++i) step();
  return {{"after_step_3", grown(after.anonymous + after.shared)},
          {"peak_of_a_step", peak()},
          {"peak", std::max(overall, peak())},
          {"of_others", profile::process_memory().shared - profile::share_of_shared_memory()}};
}

json largest_over_ranks(comm::Group& group, json use) {
  for (auto& value : use) {
    value = group.all_reduce_value<std::int64_t>(value.get<std::int64_t>(), comm::ReduceOp::max);
  }
  return use;
}

std::unique_ptr<DistributedDataParallel> replica_of(TrainingLoop& loop, comm::Group& group,
                                                    const MemoryBenchOptions& options) {
  if (!options.shard.empty()) return loop.shard(group, options.shard, options.buckets);
  return std::make_unique<DistributedDataParallel>(loop.model(), group,
                                                   DataParallelOptions{.buckets = options.buckets});
}

// Collective.
json predicted(TrainingLoop& loop, comm::Group& group, const MemoryBenchOptions& options) {
  train::TrainOptions training;
  training.shard = options.shard.empty() ? Shard::none : train::parse_shard(options.shard);
  training.units = loop.model().units();
  training.parallel.buckets = options.buckets;
  const auto prediction = train::predict_shards(loop.model(), loop.optimizer(), training,
                                                group.size(), train::count_machines(group));
  auto result = train::sharding_of_report(*prediction, std::nullopt);
  result.erase("measured_peak_bytes");
  return result;
}

std::int64_t largest_bucket(const DistributedDataParallel& replica) {
  std::size_t bytes = 0;
  for (const auto& span : replica.communication()) bytes = std::max(bytes, span.bytes);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

json measure_plain_memory(const models::ModelOptions& model, std::int64_t batch) {
  std::unique_ptr<TrainingLoop> loop;
  return growth([&] { loop = std::make_unique<TrainingLoop>(model, batch); },
                [&] { loop->step(); });
}

json run_memory_bench(comm::World& world, const MemoryBenchOptions& options) {
  std::unique_ptr<TrainingLoop> loop;
  std::unique_ptr<DistributedDataParallel> replica;
  const auto use = growth(
      [&] {
        loop = std::make_unique<TrainingLoop>(options.model, options.batch);
        replica = replica_of(*loop, world.group(), options);
      },
      [&] { loop->step(*replica); });
  const auto parameters = models::parameter_count(loop->model());
  json result = {{"benchmark", "memory"},
                 {"world_size", world.size()},
                 {"model", options.model.name},
                 {"parameters", parameters},
                 {"batch", options.batch},
                 {"bytes", largest_over_ranks(world.group(), use)},
                 // One float each for the parameter, its gradient and the optimizer's momentum.
                 {"parameters_gradients_optimizer_bytes", 3 * 4 * parameters},
                 {"largest_bucket_bytes", largest_bucket(*replica)},
                 {"sharding", predicted(*loop, world.group(), options)}};
  if (!world.is_leader()) return result;
  ChildProcess plain(options.plain_command);
  result["compared"]["plain_loop"]["bytes"] = json::parse(plain.read_line());
  return result;
}

}  // namespace ddp::bench
