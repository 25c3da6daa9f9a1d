// What a training run is asked to do. ddp-train fills it from its command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/parallel/options.h"
#include "ddp_runtime/train/learning_rate.h"

namespace ddp::train {

struct OptimizerOptions {
  std::string name = "sgd";  // sgd | adam | adamw
  double learning_rate = 0.05;
  double momentum = 0.9;  // sgd
  double weight_decay = 0;
};

struct CheckpointOptions {
  std::filesystem::path directory;  // empty: no checkpoints
  std::int64_t every_steps = 0;     // 0: not by steps
  bool every_epoch = true;
  std::int64_t keep_last = 3;
  bool keep_best = false;       // also the best one, in `directory`/best
  std::string resume = "auto";  // auto | never | the directory of one checkpoint
  // Resume in the middle of an epoch though the seed or the data are others.
  bool resume_changed = false;
  // Memory per rank for a copy of the state, which is written while training goes on. State that
  // needs more is written before the next step.
  std::uint64_t copy_bytes = 8ULL << 30;
  // Ranks share the writing if each gets at least this much of it.
  std::uint64_t bytes_per_writer = 64ULL << 20;
};

// What to do in a step in which the loss or a gradient is not finite.
enum class OnNan : std::uint8_t { stop, skip };

// Throws UsageError naming what there is.
OnNan parse_on_nan(const std::string& name);

struct TrainOptions {
  // Asynchronous: so many steps may a rank be ahead of the slowest one. Nothing: synchronous. See
  // docs/async.md.
  std::optional<std::int64_t> staleness;
  std::int64_t epochs = 0;         // 0: as many as `steps` take, or one
  std::int64_t steps = 0;          // of all epochs together; 0: no limit
  std::int64_t batch = 64;         // samples of one micro-batch on one rank
  std::int64_t micro_batches = 1;  // per optimizer step
  OptimizerOptions optimizer;
  bool scale_learning_rate = false;  // by ranks x micro-batches
  std::int64_t warmup_steps = 0;
  Schedule schedule = Schedule::constant;
  std::int64_t decay_epochs = 30;  // schedule step: how often,
  double decay_factor = 0.1;       // and by what
  double clip_norm = 0;            // 0: no clipping
  amp::Precision precision = amp::Precision::fp32;
  // Where dynamic loss scaling starts; 0: at 65536 with fp16, not scaled otherwise.
  double loss_scale = 0;
  OnNan on_nan = OnNan::stop;
  std::int64_t patience = 0;  // epochs without a better evaluation after which to stop; 0: never
  bool dry_run = false;       // one step and a bit of evaluation; nothing is resumed or written
  DataParallelOptions parallel;
  std::uint64_t seed = 1;
  int loader_threads = 1;
  std::int64_t log_every_steps = 0;  // 0: a line at the end of each epoch only
  CheckpointOptions checkpoint;
  std::filesystem::path report_directory;  // empty: no report
};

}  // namespace ddp::train
