// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/train_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/duration.h"
#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/comm/failure/liveness.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/device/cuda.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "ddp_runtime/pipeline/balance.h"
#include "ddp_runtime/tools/validators.h"
#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"
#include "ddp_runtime/train/options/checkpoint_interval.h"
#include "ddp_runtime/train/options/global_batch.h"
#include "ddp_runtime/train/options/graph_hindrance.h"
#include "ddp_runtime/train/options/shard_mode.h"
#include "ddp_runtime/train/stages/stage_rules.h"

namespace ddp::tools {
namespace {

// Synthetic samples with the shape that the model expects.
data::SyntheticShape synthetic_shape(const models::ModelOptions& model) {
  data::SyntheticShape shape;
  if (model.name == "mlp" && model.width > 0) shape.input = {model.width};
  if (model.name == "cifar-cnn" || model.name.starts_with("resnet")) shape.input = {3, 32, 32};
  return shape;
}

bool trains_on_gpus(const TrainCommandLine& c) {
  return c.device == "cuda";
}

comm::Backend backend_of(const TrainCommandLine& c) {
  const auto backend = comm::parse_backend(c.backend);
  if (c.device != "cpu" && c.device != "cuda") {
    throw UsageError(fmt::format("unknown device '{}'; use cpu or cuda", c.device));
  }
  if (!trains_on_gpus(c) && backend == comm::Backend::nccl) {
    throw UsageError("--backend nccl is for GPUs; add --device cuda, or use --backend mpi or tcp");
  }
  return backend;
}

amp::Precision param_type_of(const std::string& name) {
  if (name == "fp32") return amp::Precision::fp32;
  if (name == "bf16") return amp::Precision::bf16;
  throw UsageError(
      fmt::format("unknown type of weights '{}' (--param-type); use fp32 or bf16", name));
}

void require_init_from(const InitArguments& init) {
  if (!init.from.empty()) return;
  const bool others = init.prefix || !init.map.empty() || !init.only.empty() ||
                      !init.skip.empty() || init.strict != "all";
  if (others) {
    throw UsageError(
        "--init-map, --init-prefix, --init-only, --init-skip and --init-strict say what to take "
        "from a file; add --init-from");
  }
}

// Seconds; 0 for the default.
double mtbf_of(const TrainCommandLine& c) {
  if (c.mtbf.empty()) return 0;
  if (!c.train.checkpoint.every_auto && !c.train.checkpoint.memory_auto) {
    throw UsageError("--mtbf needs --checkpoint-every auto or --checkpoint-memory auto");
  }
  const auto seconds = parse_duration(c.mtbf);
  if (!seconds) {
    throw UsageError(fmt::format("--mtbf takes a time such as 90min, 6h or 2d, not '{}'", c.mtbf));
  }
  return *seconds;
}

void interpret_keeping(TrainCommandLine& c) {
  auto& o = c.train.checkpoint;
  static_cast<void>(train::parse_best_metric(o.best_metric));
  if (!c.keep_every.empty()) train::set_keep_every(o, c.keep_every);
  const auto limit = parse_duration(c.after_save_limit);
  if (!limit) {
    throw UsageError(fmt::format(
        "--after-save-limit takes a time such as 90s, 10min or 1h, not '{}'", c.after_save_limit));
  }
  o.after_save_limit_seconds = *limit;
  if (!o.directory.empty()) return;
  if (o.keep_best) {
    throw UsageError("--keep-best needs a --checkpoint-dir to keep the best checkpoint in");
  }
  if (!c.keep_every.empty()) throw UsageError("--keep-every needs a --checkpoint-dir");
  if (!o.after_save.empty()) throw UsageError("--after-save needs a --checkpoint-dir");
  if (!c.checkpoint_memory.empty()) {
    throw UsageError(
        "--checkpoint-memory needs a --checkpoint-dir, because memory does not outlive the job");
  }
  if (!o.local_directory.empty()) {
    throw UsageError("--checkpoint-local needs a --checkpoint-dir to copy the checkpoints to");
  }
}

void interpret_offload(TrainCommandLine& c) {
  if (!c.offload) return;
  if (c.offload->empty()) {
    throw UsageError(
        "--offload-optimizer is empty, as with a variable that is not set; give a directory on a "
        "local disk, or leave it out");
  }
  const bool on_gpus = trains_on_gpus(c);
  c.train.offload_to_host = *c.offload == "host";
  if (!c.train.offload_to_host) c.train.offload_directory = *c.offload;
  if (c.train.offload_to_host && !on_gpus) {
    throw UsageError(
        "--offload-optimizer host is for GPUs: on CPUs the optimizer's state is in that memory "
        "already; give a directory on a local disk");
  }
  if (!c.train.offload_to_host && on_gpus) {
    throw UsageError(
        "on GPUs, --offload-optimizer keeps the optimizer's state in the memory of the host; give "
        "the word host instead of a directory");
  }
}

void interpret_shards(TrainCommandLine& c) {
  auto& t = c.train;
  t.shard = train::parse_shard(c.shard);
  if (c.comm_hook == "noop" && t.shard != Shard::none) {
    throw UsageError(
        "--comm-hook noop leaves each rank its own gradients, so --shard would mix the ranks' "
        "models; leave out one of them");
  }
  t.reshard_after_forward = !c.keep_after_forward;
  if (c.keep_after_forward && t.shard != Shard::parameters && t.shard != Shard::hybrid) {
    throw UsageError(
        "--keep-after-forward is for --shard parameters, and for hybrid on GPUs; add one, or leave "
        "this out");
  }
  if (t.reduce_once && (t.shard == Shard::none || t.shard == Shard::optimizer)) {
    throw UsageError(
        "--reduce-once is for --shard gradients, parameters and hybrid, because the others reduce "
        "once per step in any case; add one, or leave this out");
  }
}

void interpret_stages(TrainCommandLine& c) {
  auto& stages = c.train.stages;
  if (!stages.wanted()) {
    if (c.pipeline_schedule.empty() && stages.chunks == 1 && !c.stage_balance) return;
    throw UsageError(
        "--pipeline-schedule, --chunks and --stage-balance are for pipelines; add --stages 2 or "
        "more");
  }
  if (!c.pipeline_schedule.empty()) {
    stages.schedule = pipeline::parse_schedule(c.pipeline_schedule);
  } else if (stages.chunks > 1) {
    stages.schedule = pipeline::Schedule::interleaved;
  }
  if (c.stage_balance) stages.balance = *c.stage_balance;
  if (stages.balance != "parameters" && stages.balance != "time") {
    static_cast<void>(pipeline::parse_balance(stages.balance, "--stage-balance"));
  }
  if (stages.balance == "time" && trains_on_gpus(c)) {
    throw UsageError(
        "--stage-balance time measures on CPUs only; use parameters, or the number of pieces of "
        "each "
        "stage");
  }
  if (!c.init.from.empty()) {
    throw UsageError(
        "--stages does not go together with --init-from; resume from a checkpoint that was trained "
        "with these weights, or leave out one of them");
  }
  train::require_possible_with_stages(c.train);
}

}  // namespace

void interpret(TrainCommandLine& c) {
  auto& t = c.train;
  const auto backend = backend_of(c);
  require_init_from(c.init);
  if (c.deterministic && backend == comm::Backend::nccl) {
    throw UsageError("--deterministic needs --backend mpi or tcp: NCCL does not add in rank order");
  }
  if (t.staleness && trains_on_gpus(c)) {
    throw UsageError(
        "--staleness needs --device cpu: asynchronous training keeps its shards there");
  }
  t.precision = amp::parse_precision(c.precision);
  t.param_type = param_type_of(c.param_type);
  t.schedule = train::parse_schedule(c.schedule);
  t.on_nan = train::parse_on_nan(c.on_nan);
  t.graph.mode = train::parse_graph_mode(c.graph);
  t.parallel.hook = hooks::by_name(c.comm_hook);
  t.parallel.reduce_type = parse_reduce_type(c.reduce_type);
  if (t.param_type != amp::Precision::fp32 && c.comm_hook.starts_with("powersgd")) {
    throw UsageError(
        "--comm-hook powersgd compresses float32 gradients only; leave out --param-type bf16");
  }
  interpret_shards(c);
  interpret_offload(c);
  t.local = local_steps_of(c.local_steps);
  interpret_stages(c);
  t.parallel.ordered_blocks = c.deterministic && t.blocks > 0;
  train::require_possible_with_blocks(t);
  if (c.comm_hook == "noop") t.parallel.check_parameters_every = 0;  // ranks drift apart
  if (c.deterministic && t.staleness.value_or(0) > 0) {
    throw UsageError(
        "--deterministic needs --staleness 0: otherwise gradients are applied as they arrive");
  }
  interpret_keeping(c);
  c.data_options.augmentation = data::parse_augmentation(c.augment);
  c.data_options.seed = t.seed;
  c.data_options.synthetic = synthetic_shape(c.model);
  t.checkpoint.copy_bytes = static_cast<std::uint64_t>(c.checkpoint_copy_mb * 1048576.0);
  t.checkpoint.bytes_per_writer = static_cast<std::uint64_t>(c.checkpoint_share_mb * 1048576.0);
  auto& buckets = t.parallel.buckets;
  if (c.bucket_mb > 0) {
    buckets.bytes = std::max<std::size_t>(static_cast<std::size_t>(c.bucket_mb * 1048576.0), 1);
    buckets.first_bytes = std::min(buckets.first_bytes, buckets.bytes);
  }
  train::set_checkpoint_interval(t.checkpoint, c.checkpoint_every);
  train::set_memory_interval(t.checkpoint, c.checkpoint_memory);
  t.checkpoint.mtbf_seconds = mtbf_of(c);
  if (t.evaluate_only || t.dry_run) t.report_directory.clear();  // nothing is written there
}

std::optional<train::InitialWeights> initial_weights_of(const TrainCommandLine& c) {
  if (c.init.from.empty()) return std::nullopt;
  train::InitialWeights weights{c.init.from};
  weights.options.prefix = c.init.prefix;
  if (!c.init.map.empty()) weights.options.map = ckpt::NameMap::open(c.init.map);
  weights.options.only = ckpt::parse_patterns(c.init.only);
  weights.options.skip = ckpt::parse_patterns(c.init.skip);
  weights.options.strict = train::parse_init_strictness(c.init.strict);
  return weights;
}

comm::WorldOptions world_options_of(const TrainCommandLine& c) {
  comm::WorldOptions options;
  options.backend = backend_of(c);
  options.gpus = trains_on_gpus(c);
  if (options.gpus) options.nccl.prepare = load_cuda;
  options.group.limits.timeout = milliseconds(c.timeout_seconds);
  options.start_timeout = milliseconds(c.start_timeout_seconds);
  options.liveness = comm::limits_for(milliseconds(c.silence_seconds));
  options.group.in_rank_order = c.deterministic;
  options.group.network = comm::parse_network(c.network);
  options.group.announce = [](const std::string& text) {
    fmt::print("collectives: {}\n", text);
    std::fflush(stdout);
  };
  options.failure_dump = c.failure_dump;
  if (c.failure_dump.empty() && !c.train.report_directory.empty()) {
    options.failure_dump = c.train.report_directory / "failure.json";
  }
  return options;
}

}  // namespace ddp::tools
