// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/run_difference.h"
#include "ddp_runtime/train/options/checkpoint_interval.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/train/options/graph_hindrance.h"
#include "ddp_runtime/train/options/shard_mode.h"

namespace ddp::train {
namespace {

const char* precision_name(amp::Precision precision) {
  switch (precision) {
    case amp::Precision::fp32:
      return "fp32";
    case amp::Precision::bf16:
      return "bf16";
    case amp::Precision::fp16:
      return "fp16";
  }
  return "";
}

std::string shown(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool differs(const nlohmann::json& saved, const nlohmann::json& now, const char* name) {
  return saved.contains(name) && now.contains(name) && saved.at(name) != now.at(name);
}

// Compares the contents of the data if both runs recorded them, because the same data may be in a
// different directory now.
bool other_data(const nlohmann::json& saved, const nlohmann::json& now) {
  const bool known = saved.contains("data_crc32c") && now.contains("data_crc32c");
  return known ? differs(saved, now, "data_crc32c") || differs(saved, now, "samples")
               : differs(saved, now, "data");
}

}  // namespace

nlohmann::json run_settings(const TrainOptions& options) {
  nlohmann::json settings = {{"optimizer", options.optimizer.name},
                             {"seed", options.seed},
                             {"learning_rate", options.optimizer.learning_rate},
                             {"scale_lr", options.scale_learning_rate},
                             {"momentum", options.optimizer.momentum},
                             {"weight_decay", options.optimizer.weight_decay},
                             {"precision", precision_name(options.precision)},
                             {"param_type", precision_name(options.param_type)},
                             {"reduce_type", reduce_type_name(options.parallel.reduce_type)},
                             {"blocks", options.blocks},
                             {"clip", options.clip_norm},
                             {"warmup", options.warmup_steps},
                             {"schedule", schedule_name(options.schedule)},
                             {"ema", options.ema_decay},
                             {"staleness", options.staleness.value_or(0)}};
  // The number of ranks decides how many micro-batches a rank has of a fixed number.
  if (options.blocks == 0) settings["accumulate"] = options.micro_batches;
  settings["local_steps"] = options.local ? options.local->every : 0;
  if (options.local) {
    settings["local_from"] = options.local->from;
    settings["local_within"] = local_within_name(options.local->within);
    settings["outer"] = outer_name(options.local->outer.kind);
    settings["outer_lr"] = options.local->outer.learning_rate;
    settings["outer_momentum"] = options.local->outer.momentum;
  }
  if (options.schedule == Schedule::step) {
    settings["decay_every"] = options.decay_epochs;
    settings["decay_factor"] = options.decay_factor;
  }
  // The rate reaches 0 at the end of the run, so a later end changes all remaining rates.
  if (options.schedule == Schedule::cosine) {
    settings["epochs"] = options.epochs;
    settings["steps"] = options.steps;
  }
  return settings;
}

nlohmann::json shared_settings(const TrainOptions& options) {
  auto settings = run_settings(options);
  settings.update({{"epochs", options.epochs},
                   {"steps", options.steps},
                   {"batch", options.batch},
                   {"global_batch", options.global_batch},
                   {"asynchronous", options.staleness.has_value()},
                   {"loss_scale", options.loss_scale},
                   {"on_nan", options.on_nan == OnNan::stop ? "stop" : "skip"},
                   {"channels_last", options.channels_last},
                   {"graph", graph_mode_name(options.graph.mode)},
                   {"shard", shard_mode_name(options.shard)},
                   {"units", options.units},
                   {"stages", options.stages.ranks},
                   {"pipeline_schedule", to_string(options.stages.schedule)},
                   {"chunks", options.stages.chunks},
                   {"stage_balance", options.stages.balance},
                   {"offload", !options.offload_directory.empty() || options.offload_to_host},
                   {"reshard_after_forward", options.reshard_after_forward},
                   {"reduce_once", options.reduce_once},
                   {"patience", options.patience},
                   {"best_metric", options.checkpoint.best_metric},
                   {"dry_run", options.dry_run},
                   {"evaluate_only", options.evaluate_only},
                   {"log_every", options.log_every_steps},
                   {"allow_unused", options.parallel.allow_unused},
                   {"static_graph", options.parallel.static_graph},
                   {"comm_hook", options.parallel.hook ? "set" : "off"},
                   {"check_parameters", options.parallel.check_parameters_every},
                   {"bucket_bytes", options.parallel.buckets.bytes},
                   {"checkpoints", !options.checkpoint.directory.empty()},
                   {"report", !options.report_directory.empty()}});
  if (!options.checkpoint.directory.empty()) {
    settings.update({{"checkpoint_every_steps", options.checkpoint.every_steps},
                     {"checkpoint_every_epoch", options.checkpoint.every_epoch},
                     {"checkpoint_every_seconds", options.checkpoint.every_seconds},
                     {"checkpoint_every_auto", options.checkpoint.every_auto},
                     {"checkpoint_memory", memory_interval_text(options.checkpoint)},
                     {"keep_every_steps", options.checkpoint.keep_every_steps},
                     {"keep_every_epochs", options.checkpoint.keep_every_epochs},
                     {"keep_best", options.checkpoint.keep_best},
                     {"after_save", !options.checkpoint.after_save.empty()},
                     {"resume", options.checkpoint.resume}});
  }
  return settings;
}

void require_storable(const nlohmann::json& run) {
  for (const auto& [name, value] : run.items()) {
    try {
      static_cast<void>(value.dump());
    } catch (const nlohmann::json::exception&) {
      throw UsageError(
          fmt::format("'{}' of this run is not UTF-8, and checkpoints can hold only UTF-8 text: {}",
                      name, value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    }
  }
}

RunDifferences run_differences(const nlohmann::json& saved, const nlohmann::json& now,
                               bool mid_epoch) {
  RunDifferences found;
  if (!saved.is_object()) return found;
  for (const auto& [name, value] : now.items()) {
    if (!differs(saved, now, name.c_str())) continue;
    found.lines.push_back(fmt::format("{} was {} in the saved run and is {} now", name,
                                      shown(saved.at(name)), shown(value)));
  }
  found.other_data = other_data(saved, now);
  if (!mid_epoch) return found;
  const bool data = found.other_data;
  const bool seed = differs(saved, now, "seed");
  if (!seed && !data) return found;
  found.refusal = fmt::format(
      "the checkpoint is from the middle of an epoch, and the {} differ{} between this run and the "
      "one that saved it: some samples would be seen twice and some never; use the same values, "
      "or pass --resume-changed",
      seed && data ? "seed and the data"
      : seed       ? "seed"
                   : "data",
      seed && !data ? "s" : "");
  return found;
}

}  // namespace ddp::train
