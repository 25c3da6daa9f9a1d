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
#include "bench/reducer_peer.h"
#include "bench/statistics.h"
#include "bench/training_loop.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::bench {
namespace {

using nlohmann::json;
using profile::Clock;

constexpr const char* kPlainLoop = "plain_loop_without_communication";

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

void require_same_size(const StartedPythonPeer& python, TrainingLoop& ours) {
  const auto parameters = models::parameter_count(ours.model());
  if (!python.peer || python.parameters == parameters) return;
  throw RuntimeError(fmt::format("Python's model has {} parameters, ours {}: not the same model",
                                 python.parameters, parameters));
}

}  // namespace

json run_step_bench(comm::World& world, const StepBenchOptions& options) {
  comm::Group& group = world.group();
  StartedPythonPeer python;
  const std::string optimizer = options.optimizer.empty() ? "sgd" : options.optimizer;
  const bool on_cpus = options.how.device.is_cpu();
  if (options.graph && on_cpus) throw UsageError("--graph needs --device cuda");
  if (!on_cpus) at::globalContext().setBenchmarkCuDNN(true);  // as Python's
  if (options.with_python) {
    auto peer = options.python;
    peer.optimizer = optimizer;
    python = start_python_peer(group, options.model, options.batch, peer, options.how);
  }
  using Library = TrainingLoop::Library;
  const auto make_loop = [&](Library library) {
    return TrainingLoop(options.model, options.batch, optimizer, library, options.how);
  };
  TrainingLoop plain = make_loop(Library::torch);
  const auto library = options.optimizer.empty() ? Library::torch : Library::ours;
  TrainingLoop ours = make_loop(library);
  require_same_size(python, ours);
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
    add_loop("ours_with_shards", *divided, [&] { divided->step(*divided_replica); });
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
  const std::string peer = on_cpus ? "python_ddp_gloo" : "python_ddp_nccl";
  if (python.peer) add(peer, [&](std::int64_t n) { return python.peer->run(n); });
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
  if (!options.hook.empty()) {
    auto& with_hook = result["compared"]["ours_with_hook"];
    with_hook["hook"] = options.hook;
    with_hook["bytes_over_ours"] = bytes_reduced(hooked_replica) / bytes_reduced(replica);
  }
  if (!python.version.empty()) {
    result["compared"][peer]["torch"] = python.version;
    result["compared"][peer]["step"] = options.python.step;
  }
  if (!python.missing.empty()) result["not_compared"][peer] = python.missing;
  if (options.link_gbit > 0) {
    const auto plain_seconds =
        std::find_if(contenders.begin(), contenders.end(), [](const auto& c) {
          return c.name == kPlainLoop;
        })->seconds;
    auto bound =
        limit(median(plain_seconds), bytes_reduced(replica), world.size(), options.link_gbit);
    bound["our_p50_over_it"] = median(our_seconds) / bound["seconds"].get<double>();
    result["limit"] = std::move(bound);
  }
  return result;
}

}  // namespace ddp::bench
