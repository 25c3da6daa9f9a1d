// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/run_table.h"

#include "ddp_runtime/train/options/checkpoint_interval.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/train/options/global_batch.h"

namespace ddp::train {
namespace {

std::string plural(std::int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", with_commas(count), thing, count == 1 ? "" : "s");
}

std::string batch(const RunHeader& header, const TrainOptions& o) {
  const int parts = o.stages.replicas(header.ranks);
  const auto each = batch_per_rank(o, parts);
  if (o.blocks > 0) {
    return fmt::format("global batch {}: {} of {}, {} for each of {}; the same on {} ranks",
                       o.global_batch, plural(o.blocks, "block"), each,
                       micro_batches_per_rank(o, parts), plural(parts, "rank"),
                       describe_possible_ranks(o.blocks));
  }
  return fmt::format("global batch {}: {} x {} {} x {}", each * o.micro_batches * parts, each,
                     o.micro_batches, o.micro_batches == 1 ? "micro-batch" : "micro-batches",
                     plural(parts, o.stages.wanted() ? "pipeline" : "rank"));
}

std::string length(const RunHeader& header, const TrainOptions& o) {
  const int parts = o.stages.replicas(header.ranks);
  const std::int64_t steps = header.training_samples /
                             (batch_per_rank(o, parts) * micro_batches_per_rank(o, parts) * parts);
  const auto epoch = plural(steps, "step");
  std::string text;
  if (o.epochs == 0 && o.steps > 0) {
    text = fmt::format("{}, epochs of {}", plural(o.steps, "step"), epoch);
  } else {
    text = fmt::format("{} of {}", plural(std::max<std::int64_t>(1, o.epochs), "epoch"), epoch);
    if (o.steps > 0) text += fmt::format(", at most {}", plural(o.steps, "step"));
  }
  if (o.patience > 0) {
    text += fmt::format(", until {} pass without a better evaluation", plural(o.patience, "epoch"));
  }
  return text;
}

std::string optimizer(const TrainOptions& o) {
  auto text = o.optimizer.name;
  if (o.optimizer.name == "sgd") text += fmt::format(", momentum {}", o.optimizer.momentum);
  if (o.optimizer.weight_decay > 0) {
    text += fmt::format(", weight decay {}", o.optimizer.weight_decay);
  }
  if (o.clip_norm > 0) text += fmt::format(", gradients clipped to norm {}", o.clip_norm);
  return text;
}

std::string learning_rate(const RunHeader& header, const TrainOptions& o) {
  auto text = fmt::format("{}", o.optimizer.learning_rate);
  if (o.scale_learning_rate) {
    const int parts = o.stages.replicas(header.ranks);
    text += fmt::format(" x {}", parts * micro_batches_per_rank(o, parts));
  }
  if (o.warmup_steps > 0)
    text += fmt::format(", after {} of warm-up", plural(o.warmup_steps, "step"));
  if (o.schedule == Schedule::cosine) text += ", cosine to 0";
  if (o.schedule == Schedule::step) {
    text += fmt::format(", x {} every {}", o.decay_factor, plural(o.decay_epochs, "epoch"));
  }
  return text;
}

std::string precision(const TrainOptions& o) {
  std::string text;
  switch (o.precision) {
    case amp::Precision::fp32:
      text = "fp32";
      break;
    case amp::Precision::bf16:
      text = "bf16 autocast";
      break;
    case amp::Precision::fp16:
      text = "fp16 autocast, loss scaled";
      break;
  }
  if (o.param_type == amp::Precision::bf16) text += ", bf16 weights with fp32 masters";
  if (o.parallel.reduce_type) {
    text += fmt::format(", gradients added up in {}", reduce_type_name(o.parallel.reduce_type));
  }
  if (o.loss_scale > 0) text += fmt::format(", loss scale from {}", o.loss_scale);
  if (o.channels_last) text += ", channels last in memory";
  if (o.on_nan == OnNan::skip) text += ", steps that are not finite are skipped";
  return text;
}

std::string shards(const TrainOptions& o) {
  switch (o.shard) {
    case Shard::none:
    case Shard::optimizer:
      break;
    case Shard::gradients:
      return "each rank has its part of the optimizer's state and of the gradients";
    case Shard::parameters:
      return fmt::format(
          "each rank has its part of the optimizer's state, the gradients and the parameters; {} "
          "are whole while they compute",
          fmt::join(o.units, ", "));
    case Shard::hybrid:
      return "each rank of a node has its part of the optimizer's state, the gradients and the "
             "parameters, which CPUs have once per node, in shared memory";
  }
  return "each rank has its part of the optimizer's state";
}

std::string local_steps_text(const LocalStepsOptions& o) {
  auto text = fmt::format("parameters are averaged every {}", plural(o.every, "step"));
  if (o.from > 0) text += fmt::format(" after the first {}", plural(o.from, "step"));
  if (o.within == LocalWithin::node) text += ", gradients within each node";
  if (o.outer.kind == Outer::nesterov) {
    text += fmt::format(", outer sgd with rate {}, Nesterov momentum {}", o.outer.learning_rate,
                        o.outer.momentum);
  }
  return text;
}

std::string stages(const StageOptions& o) {
  return fmt::format("{} on {}{}, schedule {}", o.count(), plural(o.ranks, "rank"),
                     o.chunks > 1 ? fmt::format(", {} on each", o.chunks) : "",
                     to_string(o.schedule));
}

std::string graph_text(const GraphOptions& o) {
  return fmt::format("one launch per step after {} eager ones{}", o.warm_up,
                     o.mode == GraphMode::automatic ? ", if nothing hinders it" : "");
}

std::string checkpoints(const CheckpointOptions& o) {
  return fmt::format(
      "{}, every {}, {}{}", o.directory.string(), checkpoint_interval_text(o),
      kept_checkpoints_text(o),
      o.copies_in_memory() ? "; in node memory every " + memory_interval_text(o) : "");
}

}  // namespace

std::string with_commas(std::int64_t number) {
  const auto digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string run_table(const RunHeader& header, const TrainOptions& o) {
  std::string table = header.program + (o.dry_run         ? ": a dry run of one step\n"
                                        : o.evaluate_only ? ": an evaluation\n"
                                                          : "\n");
  const auto row = [&](const char* name, const std::string& value) {
    table += fmt::format("  {:<14} {}\n", name, value);
  };
  row("model", fmt::format("{}, {} parameters", header.model, with_commas(header.parameters)));
  row("data",
      fmt::format("{}, {} for training, {} for evaluation", header.data,
                  plural(header.training_samples, "sample"),
                  header.evaluation_samples > 0 ? with_commas(header.evaluation_samples) : "none"));
  row("ranks", fmt::format("{} over {}, {} each", header.ranks, header.backend,
                           plural(header.threads, "thread")));
  if (o.evaluate_only) {
    row("precision", precision(o));
    if (o.ema_decay > 0) row("weights", "their average (--ema)");
    return table;
  }
  row("batch", batch(header, o));
  row("length", length(header, o));
  if (o.staleness) {
    row("asynchronous",
        fmt::format("no rank more than {} ahead of the slowest", plural(*o.staleness, "step")));
  }
  if (o.local) row("local steps", local_steps_text(*o.local));
  row("optimizer", optimizer(o));
  if (o.shard != Shard::none) row("shards", shards(o));
  if (o.stages.wanted()) row("stages", stages(o.stages));
  if (o.offload_to_host) row("offload", "the optimizer's state is on the host");
  if (!o.offload_directory.empty()) {
    row("offload",
        fmt::format("the optimizer's state is in files in {}", o.offload_directory.string()));
  }
  row("learning rate", learning_rate(header, o));
  row("precision", precision(o));
  if (o.ema_decay > 0) {
    row("weights", fmt::format("evaluated and saved as averages, too, with decay {}", o.ema_decay));
  }
  if (o.graph.mode != GraphMode::off) row("graph", graph_text(o.graph));
  row("seed", std::to_string(o.seed));
  if (!o.checkpoint.directory.empty()) row("checkpoints", checkpoints(o.checkpoint));
  if (!o.report_directory.empty()) row("report", o.report_directory.string());
  return table;
}

}  // namespace ddp::train
