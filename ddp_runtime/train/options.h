// What a training run is asked to do. ddp-train fills it from its command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/parallel/options.h"

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
  std::string resume = "auto";  // auto | never | the folder of one checkpoint
};

struct TrainOptions {
  std::int64_t epochs = 1;
  std::int64_t steps = 0;          // of all epochs together; 0: no limit
  std::int64_t batch = 64;         // samples of one micro-batch on one rank
  std::int64_t micro_batches = 1;  // per optimiser step
  OptimizerOptions optimizer;
  bool scale_learning_rate = false;  // by ranks x micro-batches
  std::int64_t warmup_steps = 0;
  double clip_norm = 0;  // 0: no clipping
  amp::Precision precision = amp::Precision::fp32;
  DataParallelOptions parallel;
  std::uint64_t seed = 1;
  int loader_threads = 1;
  std::int64_t log_every_steps = 0;  // 0: a line at the end of each epoch only
  CheckpointOptions checkpoint;
  std::filesystem::path report_directory;  // empty: no report
};

}  // namespace ddp::train
