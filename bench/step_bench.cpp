// SPDX-License-Identifier: Apache-2.0
#include "bench/step_bench.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "bench/contenders.h"
#include "bench/graphed_loop.h"
#include "bench/local_loop.h"
#include "bench/reducer_peer.h"
#include "bench/statistics.h"
#include "bench/training_loop.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/memory/training_sizes.h"

namespace ddp::bench {
namespace {

using nlohmann::json;
using profile::Clock;

constexpr const char* kPlainLoop = "plain_loop_without_communication";
constexpr const char* kWithShards = "ours_with_shards";

std::vector<double> time_block(std::int64_t steps, TrainingLoop& loop,
                               const std::function<void()>& step) {
  const auto begin = Clock::now();
  for (std::int64_t i = 0; i < steps; ++i) step();
  loop.finish();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return std::vector<double>(static_cast<std::size_t>(steps), seconds / static_cast<double>(steps));
}

// A step takes at least as long as its computation, and at least as long as its bytes on the wire.
json limit(double compute, double bytes, int ranks, double link_gbit) {
  const double sent = 2.0 * (ranks - 1) / ranks * bytes;
  const double wire = 8 * sent / (link_gbit * 1e9);
  return {{"link_gbit", link_gbit},
          {"bytes_sent_per_rank", sent},
          {"compute_seconds", compute},
          {"wire_seconds", wire},
          {"seconds", std::max(compute, wire)}};
}

double bytes_reduced(const DistributedDataParallel& replica) {
  double bytes = 0;
  for (const auto& span : replica.communication()) bytes += static_cast<double>(span.bytes);
  return bytes;
}

struct PythonContender {
  std::string name;
  StartedPythonPeer started;
  bool has_shards = false;
};

// Collective. Starts Python's DistributedDataParallel and, if our ranks divide something among
// themselves, Python's way to divide it.
std::vector<PythonContender> start_python(comm::Group& group, const StepBenchOptions& options,
                                          const std::string& optimizer) {
  std::vector<PythonContender> all;
  if (!options.with_python) return all;
  std::vector<std::string> shards = {""};
  // Within one node, PyTorch's hybrid sharding is FSDP2; between nodes, it is not compared.
  const bool is_hybrid = options.shard == "hybrid";
  if (!options.shard.empty() && (!is_hybrid || train::count_machines(group) == 1)) {
    shards.push_back(is_hybrid ? "parameters" : options.shard);
  }
  for (const auto& shard : shards) {
    auto peer = options.python;
    peer.optimizer = optimizer;
    peer.shard = shard;
    all.push_back({python_peer_name(shard, options.how.device),
                   start_python_peer(group, options.model, options.batch, peer, options.how),
                   !shard.empty()});
  }
  return all;
}

void require_same_size(const std::vector<PythonContender>& pythons, TrainingLoop& ours) {
  const auto parameters = models::parameter_count(ours.model());
  for (const auto& python : pythons) {
    const auto theirs = python.started.parameters;
    if (!python.started.peer || theirs == parameters) continue;
    throw RuntimeError(fmt::format("Python's model has {} parameters, ours {}: not the same model",
                                   theirs, parameters));
  }
}

const Contender& contender_named(const std::vector<Contender>& contenders,
                                 const std::string& name) {
  return *std::find_if(contenders.begin(), contenders.end(),
                       [&](const auto& c) { return c.name == name; });
}

// Adds what is known of each Python peer. One that divides something is also compared with our step
// that does.
void add_python(json& result, const std::vector<PythonContender>& pythons,
                const std::vector<Contender>& contenders, const StepBenchOptions& options) {
  for (const auto& [name, python, has_shards] : pythons) {
    if (!python.missing.empty()) result["not_compared"][name] = python.missing;
    if (!python.peer) continue;
    auto& peer = result["compared"][name];
    peer["torch"] = python.version;
    peer["step"] = options.python.step;
    if (!has_shards) continue;
    peer[kWithShards] = ratios(contender_named(contenders, kWithShards),
                               contender_named(contenders, name), options.block);
  }
}

}  // namespace

json run_step_bench(comm::World& world, const StepBenchOptions& options) {
  comm::Group& group = world.group();
  const std::string optimizer = options.optimizer.empty() ? "sgd" : options.optimizer;
  const bool on_cpus = options.how.device.is_cpu();
  if (options.graph && on_cpus) throw UsageError("--graph needs --device cuda");
  if (options.local_steps > 0 && options.block % options.local_steps != 0) {
    throw UsageError(fmt::format(
        "blocks of {} steps do not have the same number of averages; use a --block that "
        "is a multiple of --local-steps {}",
        options.block, options.local_steps));
  }
  if (!on_cpus) at::globalContext().setBenchmarkCuDNN(true);  // as Python's
  const auto pythons = start_python(group, options, optimizer);
  using Library = TrainingLoop::Library;
  const auto make_loop = [&](Library library) {
    return TrainingLoop(options.model, options.batch, optimizer, library, options.how);
  };
  TrainingLoop plain = make_loop(Library::torch);
  const auto library = options.optimizer.empty() ? Library::torch : Library::ours;
  TrainingLoop ours = make_loop(library);
  require_same_size(pythons, ours);
  DistributedDataParallel replica(ours.model(), group, {.buckets = options.buckets});

  std::vector<Contender> contenders;
  const auto add = [&](std::string name, std::function<std::vector<double>(std::int64_t)> run) {
    contenders.push_back({std::move(name), std::move(run)});
  };
  const auto add_loop = [&](std::string name, TrainingLoop& loop, std::function<void()> step) {
    add(std::move(name), [&loop, step = std::move(step), on_cpus](std::int64_t n) {
      return on_cpus ? time_steps(n, step) : time_block(n, loop, step);
    });
  };
  std::optional<TrainingLoop> captured;
  std::optional<GraphedLoop> graphed;
  if (options.graph) {
    graphed.emplace(group, captured.emplace(make_loop(library)), optimizer, options.buckets);
    add("ours", [&](std::int64_t n) {
      std::vector<double> seconds;
      graphed->on_stream([&] { seconds = time_block(n, *captured, [&] { graphed->step(); }); });
      return seconds;
    });
  }
  add_loop(options.graph ? "ours_eager" : "ours", ours, [&] { ours.step_by_bucket(replica); });
  add_loop(kPlainLoop, plain, [&] { plain.step(); });
  if (!options.optimizer.empty() && !options.graph) {
    add_loop("ours_with_update_after_all", ours, [&] { ours.step(replica); });
    add_loop("plain_loop_without_update", plain, [&] { plain.step_without_update(); });
  }
  std::optional<TrainingLoop> divided;
  std::unique_ptr<DistributedDataParallel> divided_replica;
  if (!options.shard.empty()) {
    divided_replica =
        divided.emplace(make_loop(library)).shard(group, options.shard, options.buckets);
    add_loop(kWithShards, *divided, [&] { divided->step(*divided_replica); });
  }
  // A block as a whole: most of its steps do not wait for an average.
  std::optional<LocalLoop> local;
  if (options.local_steps > 0) {
    local.emplace(group, make_loop(library), options.local_steps, options.buckets);
    add("ours_with_local_steps",
        [&](std::int64_t n) { return time_block(n, local->loop(), [&] { local->step(); }); });
  }
  TrainingLoop hooked = make_loop(library);
  DistributedDataParallel hooked_replica(
      hooked.model(), group, {.buckets = options.buckets, .hook = hooks::by_name(options.hook)});
  if (!options.hook.empty()) {
    add_loop("ours_with_hook", hooked, [&] { hooked.step(hooked_replica); });
  }
  TrainingLoop theirs = make_loop(Library::torch);
  const auto reducer = on_cpus ? make_reducer_peer(group, theirs.model().parameters()) : nullptr;
  if (reducer) add_loop("c10d_reducer_gloo", theirs, [&] { theirs.step(*reducer); });
  for (const auto& [name, python, has_shards] : pythons) {
    if (auto* const peer = python.peer.get()) {
      add(name, [peer](std::int64_t n) { return peer->run(n); });
    }
  }
  take_turns(group, contenders, options.steps, options.block);

  const auto& our_seconds = contenders.front().seconds;
  json result = {{"benchmark", "step"},
                 {"world_size", world.size()},
                 {"model", options.model.name},
                 {"parameters", models::parameter_count(ours.model())},
                 {"batch", options.batch},
                 {"optimizer", optimizer},
                 {"device", on_cpus ? "cpu" : "cuda"},
                 {"precision", precision_of(options.how)},
                 {"step", options.graph ? "graph" : "eager"},
                 {"channels_last", options.how.channels_last},
                 {"threads", torch::get_num_threads()},
                 {"steps", our_seconds.size()},
                 {"block", options.block},
                 {"buckets", replica.bucket_count()},
                 {"step_seconds", percentiles(our_seconds)}};
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    result["compared"][contenders[i].name] =
        comparison(contenders.front(), contenders[i], options.block);
  }
  if (options.local_steps > 0) {
    result["compared"]["ours_with_local_steps"]["every"] = options.local_steps;
  }
  if (!options.hook.empty()) {
    auto& with_hook = result["compared"]["ours_with_hook"];
    with_hook["hook"] = options.hook;
    with_hook["bytes_over_ours"] = bytes_reduced(hooked_replica) / bytes_reduced(replica);
  }
  add_python(result, pythons, contenders, options);
  if (options.link_gbit > 0) {
    const auto& plain_seconds = contender_named(contenders, kPlainLoop).seconds;
    auto bound =
        limit(median(plain_seconds), bytes_reduced(replica), world.size(), options.link_gbit);
    bound["our_p50_over_it"] = median(our_seconds) / bound["seconds"].get<double>();
    result["limit"] = std::move(bound);
  }
  return result;
}

}  // namespace ddp::bench
