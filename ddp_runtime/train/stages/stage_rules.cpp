// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/stages/stage_rules.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {
namespace {

constexpr const char* kLeaveOut = "leave out one of them";

void refuse_if(bool given, const char* what, const char* instead = kLeaveOut) {
  if (!given) return;
  throw UsageError(fmt::format("--stages does not go together with {}; {}", what, instead));
}

void require_schedule(const StageOptions& stages, std::int64_t micro_batches) {
  if (stages.schedule == pipeline::Schedule::zb_h1) {
    throw UsageError(
        "--pipeline-schedule zb-h1 needs layers whose backward is split (ddp::SplitLinear), which "
        "the "
        "bundled models do not have; use gpipe, 1f1b or interleaved");
  }
  if (stages.schedule == pipeline::Schedule::interleaved && stages.chunks == 1) {
    throw UsageError(
        "--pipeline-schedule interleaved takes turns among several stages of a rank; add --chunks "
        "2 "
        "or more, or use 1f1b");
  }
  if (stages.schedule != pipeline::Schedule::interleaved && stages.chunks > 1) {
    throw UsageError(
        fmt::format("--chunks {} gives each rank several stages, for which the schedule is "
                    "--pipeline-schedule interleaved; use it, or leave out --chunks",
                    stages.chunks));
  }
  if (stages.schedule == pipeline::Schedule::interleaved && micro_batches % stages.ranks != 0) {
    throw UsageError(
        fmt::format("--pipeline-schedule interleaved with --stages {} needs a multiple of {} "
                    "micro-batches, not "
                    "--accumulate {}; use {}, or another schedule",
                    stages.ranks, stages.ranks, micro_batches,
                    (micro_batches / stages.ranks + 1) * stages.ranks));
  }
}

}  // namespace

void require_possible_with_stages(const TrainOptions& options) {
  if (!options.stages.wanted()) return;
  refuse_if(options.shard != Shard::none, "--shard");
  refuse_if(options.staleness.has_value(), "--staleness");
  refuse_if(options.local.has_value(), "--local-steps");
  refuse_if(static_cast<bool>(options.parallel.hook), "--comm-hook");
  refuse_if(options.parallel.reduce_type.has_value(), "--reduce-type");
  refuse_if(options.channels_last, "--channels-last");
  refuse_if(options.graph.mode != GraphMode::off, "--graph");
  refuse_if(options.ema_decay > 0, "--ema");
  refuse_if(!options.offload_directory.empty() || options.offload_to_host, "--offload-optimizer");
  refuse_if(options.param_type != amp::Precision::fp32, "--param-type bf16");
  require_schedule(options.stages, options.micro_batches);
}

void require_possible_with_stages(const Objective& objective, bool own_optimizer) {
  refuse_if(own_optimizer, "an optimizer of the task's own", "use TrainOptions::optimizer");
  refuse_if(objective.batch_loss || objective.weight || !objective.metrics.empty(),
            "a batch_loss, weights of batches or metrics", "use a loss of the outputs and targets");
}

}  // namespace ddp::train
