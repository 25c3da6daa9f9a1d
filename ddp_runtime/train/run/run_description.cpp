// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_description.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/train/options/graph_hindrance.h"
#include "ddp_runtime/train/options/run_difference.h"
#include "ddp_runtime/train/options/shard_mode.h"
#include "hdf5_ckpt/core/crc32c.h"

namespace ddp::train {
namespace {

// Identifies a data set regardless of its location: checksum of its first, middle and last sample.
std::string data_crc32c(const data::Dataset& data) {
  if (data.size() == 0) return fmt::format("{:08x}", 0);
  const std::vector<std::int64_t> samples = {0, data.size() / 2, data.size() - 1};
  const auto batch = data.get(samples);
  std::uint32_t crc = 0;
  data::for_each_tensor(batch, [&](const torch::Tensor& tensor) {
    const auto bytes = tensor.detach().to(torch::kCPU).contiguous();
    crc = ckpt::crc32c({static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()}, crc);
    return bytes;
  });
  return fmt::format("{:08x}", crc);
}

nlohmann::json initial_settings(const TrainTask& task) {
  if (!task.initial_weights) return nlohmann::json::object();
  return settings_of(*task.initial_weights);
}

}  // namespace

nlohmann::json describe_subject(const TrainTask& task) {
  nlohmann::json subject = {{"model", task.model_name},
                            {"samples", task.data.train->size()},
                            {"data_crc32c", data_crc32c(*task.data.train)}};
  subject.update(nlohmann::json(task.settings));
  subject.update(initial_settings(task));
  return subject;
}

nlohmann::json describe_run(const nlohmann::json& subject, const TrainTask& task,
                            const TrainOptions& options, const data::BatchLayout& layout) {
  auto run = run_settings(options);
  run.update({{"data", task.data.name}, {"global_batch", layout.global_batch()}});
  if (options.scale_learning_rate) {
    run["learning_rate_factor"] = layout.ranks * options.micro_batches;
  }
  run.update(subject);
  return run;
}

nlohmann::json describe_evaluation(const nlohmann::json& subject, const TrainTask& task,
                                   const TrainOptions& options) {
  const auto settings = run_settings(options);
  nlohmann::json run = {{"data", task.data.name},
                        {"precision", settings.at("precision")},
                        {"param_type", settings.at("param_type")}};
  run.update(subject);
  for (const char* of_training : {"augment", "freeze"}) run.erase(of_training);
  return run;
}

nlohmann::json describe_settings(const TrainTask& task, const TrainOptions& options) {
  auto settings = run_settings(options);
  const auto buckets = limits_on(!device_of(task.module).is_cpu(), options.parallel.buckets);
  settings.update({{"batch", options.batch},
                   {"bucket_bytes", buckets.bytes},
                   {"comm_hook", options.parallel.hook ? "set" : "off"},
                   {"channels_last", options.channels_last ? "yes" : "no"},
                   {"graph", graph_mode_name(options.graph.mode)},
                   {"shard", shard_mode_name(options.shard)}});
  if (options.stages.wanted()) {
    settings.update({{"stages", options.stages.ranks},
                     {"pipeline_schedule", to_string(options.stages.schedule)},
                     {"chunks", options.stages.chunks},
                     {"stage_balance", options.stages.balance}});
  }
  // 0 is asynchronous, too.
  if (!options.staleness) settings["staleness"] = "off";
  settings.update(nlohmann::json(task.settings));
  settings.update(initial_settings(task));
  settings.update(nlohmann::json(task.report_settings));
  return settings;
}

}  // namespace ddp::train
