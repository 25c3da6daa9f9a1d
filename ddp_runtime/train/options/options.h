// SPDX-License-Identifier: Apache-2.0
// Options of a training run. ddp-train fills them from its command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/parallel/buckets/options.h"
#include "ddp_runtime/parallel/device/cuda_graph.h"
#include "ddp_runtime/parallel/local/local_options.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/train/options/learning_rate.h"
#include "ddp_runtime/train/options/stage_options.h"

namespace ddp::train {

struct OptimizerOptions {
  std::string name = "sgd";  // sgd | adam | adamw
  double learning_rate = 0.05;
  double momentum = 0.9;  // SGD only
  double weight_decay = 0;
};

struct CheckpointOptions {
  std::filesystem::path directory;  // empty: no checkpoints
  // A directory on a disk of each node, to which checkpoints are saved first; empty: none. See
  // docs/checkpoint.md.
  std::filesystem::path local_directory;
  std::int64_t every_steps = 0;  // 0: no saves at a fixed number of steps
  bool every_epoch = true;
  double every_seconds = 0;  // of training between two saves, by rank 0's clock; 0: not by time
  bool every_auto = false;   // as every_seconds, with Young's interval; see save_timer.h
  // The mean time between failures of the whole job, for every_auto; 0: kNodeMtbfSeconds divided by
  // the number of nodes.
  double mtbf_seconds = 0;
  // Copies of the state in the memory of the nodes, for a program that ddp-run starts again: after
  // so many steps, or so many seconds, or with Young's interval; 0 and false: none. See
  // memory_copies.h.
  std::int64_t memory_steps = 0;
  double memory_seconds = 0;
  bool memory_auto = false;
  bool copies_in_memory() const noexcept {
    return memory_steps > 0 || memory_seconds > 0 || memory_auto;
  }
  std::int64_t keep_last = 3;
  // Checkpoints that are also saved, and kept for good: at each multiple of this step, and at the
  // end of each multiple of this epoch; 0: none.
  std::int64_t keep_every_steps = 0;
  std::int64_t keep_every_epochs = 0;
  bool keep_best = false;  // also the checkpoint with the best evaluation, in `directory`/best
  // Decides which evaluation is better, also for patience: loss (lower) or accuracy (higher).
  std::string best_metric = "loss";
  // A command for /bin/sh on rank 0 after each checkpoint in `directory`, in the background; empty:
  // none. See after_save.h.
  std::string after_save;
  double after_save_limit_seconds = 3600;  // a command that runs longer is killed
  std::string resume = "auto";             // auto | never | the directory of one checkpoint
  // With TrainOptions::evaluate_only, instead of `resume`: a directory of checkpoints, in which
  // another run may be saving. The newest one is evaluated.
  std::filesystem::path evaluated_directory;
  // Resume in the middle of an epoch even if the seed or the data has changed.
  bool resume_changed = false;
  // Memory per rank for a copy of the state, which is written while training continues. State that
  // does not fit is written before the next step.
  std::uint64_t copy_bytes = 8ULL << 30;
  // Ranks share the writing if each gets at least this many bytes.
  std::uint64_t bytes_per_writer = 64ULL << 20;
};

// Response to a step whose loss or gradients are not finite.
enum class OnNan : std::uint8_t { stop, skip };

// Throws UsageError listing the valid values.
OnNan parse_on_nan(const std::string& name);

// Whether a step is captured as a graph, which later steps replay: see docs/gpu.md.
enum class GraphMode : std::uint8_t {
  off,
  automatic,  // if nothing hinders it; otherwise steps run eagerly, and one line says why
  on,         // what hinders it is an error
};

struct GraphOptions {
  GraphMode mode = GraphMode::off;
  std::int64_t warm_up = 3;  // steps that run eagerly first, at least 3
  MakeGraph make = make_cuda_graph;
};

struct TrainOptions {
  // Asynchronous training: the maximum number of steps that a rank may be ahead of the slowest
  // rank. nullopt: synchronous training. See docs/async.md.
  std::optional<std::int64_t> staleness;
  // Ranks step alone, and average their parameters now and then; nullopt: gradients are averaged in
  // each step. `buckets` and `check_parameters_every` are those of `parallel`. See LocalSteps.
  std::optional<LocalStepsOptions> local;
  std::int64_t epochs = 0;         // 0: as many as needed for `steps`, or one
  std::int64_t steps = 0;          // over all epochs; 0: no limit
  std::int64_t batch = 64;         // samples of one micro-batch on one rank
  std::int64_t micro_batches = 1;  // per optimizer step
  // Samples of a step over all ranks and micro-batches, which then decides `batch`; 0: `batch`
  // does.
  std::int64_t global_batch = 0;
  // Divides `global_batch` into this many micro-batches, which have the same samples and random
  // numbers on any number of ranks that divides it; decides `micro_batches`; 0: no fixed number.
  std::int64_t blocks = 0;
  OptimizerOptions optimizer;
  // What the ranks divide among themselves. `units`, `reshard_after_forward` and
  // `reduce_once` are those of ShardOptions.
  Shard shard = Shard::none;
  std::vector<std::string> units;
  bool reshard_after_forward = true;
  bool reduce_once = false;             // always so without shards, and with Shard::optimizer
  std::shared_ptr<ShardedBuild> build;  // null: the model was built whole
  // How the ranks share the model as stages of pipelines.
  StageOptions stages;
  // For CPUs: directory on a local disk of each node where the optimizer keeps its state, and the
  // masters of bf16 weights, in files without names; empty: in memory. For GPUs: whether it keeps
  // its state on the host. Needs an optimizer of ddp::optim. See optim/offload.
  std::filesystem::path offload_directory;
  bool offload_to_host = false;
  bool scale_learning_rate = false;  // by ranks x micro-batches
  std::int64_t warmup_steps = 0;
  Schedule schedule = Schedule::constant;
  std::int64_t decay_epochs = 30;  // schedule step: epochs between decays
  double decay_factor = 0.1;       // schedule step: factor per decay
  double clip_norm = 0;            // 0: no clipping
  amp::Precision precision = amp::Precision::fp32;
  // fp32, or bf16: the weights that multiply inputs are bfloat16, and the optimizer keeps float32
  // masters of them. Needs `precision` bf16. See bf16_weights.h.
  amp::Precision param_type = amp::Precision::fp32;
  // Initial scale of dynamic loss scaling; 0: 65536 with fp16, no scaling otherwise.
  double loss_scale = 0;
  OnNan on_nan = OnNan::stop;
  GraphOptions graph;
  // Keep images and the weights of convolutions in channels-last memory.
  bool channels_last = false;
  // Decay of an average of the weights, which evaluations use and checkpoints hold; 0: no average.
  // See weight_average.h.
  double ema_decay = 0;
  std::int64_t patience =
      0;                 // epochs without a better evaluation before stopping; 0: never stop early
  bool dry_run = false;  // one step and a short evaluation; nothing is resumed or written
  // Only evaluates the weights of checkpoint.resume or of checkpoint.evaluated_directory, or the
  // initial ones; with ema_decay, the average of them that is saved there. Nothing is written,
  // checkpoint.directory must be empty, and the optimizer may be another than the run's.
  bool evaluate_only = false;
  DataParallelOptions parallel;
  std::uint64_t seed = 1;
  int loader_threads = 1;
  std::int64_t log_every_steps = 0;  // 0: only one line at the end of each epoch
  CheckpointOptions checkpoint;
  std::filesystem::path report_directory;  // empty: no report
};

}  // namespace ddp::train
