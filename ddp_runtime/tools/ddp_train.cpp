// SPDX-License-Identifier: Apache-2.0
// ddp-train: trains one of the project's models on one or more ranks.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/device/cuda.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/tools/train_command_line.h"
#include "ddp_runtime/tools/train_result.h"
#include "ddp_runtime/tools/train_settings.h"
#include "ddp_runtime/train/model/bf16_weights.h"
#include "ddp_runtime/train/model/freeze.h"
#include "ddp_runtime/train/options/global_batch.h"
#include "ddp_runtime/train/options/run_table.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "ddp_runtime/train/report/run_reporter.h"
#include "ddp_runtime/train/stages/staged_model.h"
#include "ddp_runtime/train/step/gpu_advice.h"
#include "ddp_runtime/train/trainer.h"
#include "slurm_ddp/version.h"

namespace {

using CommandLine = ddp::tools::TrainCommandLine;

std::string program() {
  return std::string("ddp-train ") + ddp::kVersion;
}

void print_start(const CommandLine& c, const ddp::train::TrainOptions& options,
                 ddp::comm::World& world, const torch::nn::Module& model,
                 const ddp::data::DataPair& data, std::int64_t frozen) {
  const ddp::train::RunHeader header{program(),
                                     c.model.name,
                                     ddp::models::parameter_count(model),
                                     data.name,
                                     data.train->size(),
                                     data.evaluation->size(),
                                     world.size(),
                                     std::string(world.group().backend()),
                                     torch::get_num_threads()};
  std::fputs(ddp::train::run_table(header, options).c_str(), stdout);
  if (frozen > 0) {
    fmt::print("  {:<14} {} of {} parameter tensors\n", "frozen", frozen,
               ddp::named_parameters(model).size());
  }
  std::fflush(stdout);
}

// Settings that change a run although the arrays of its checkpoints keep their shapes.
std::map<std::string, std::string> settings_of(const CommandLine& c) {
  std::map<std::string, std::string> settings = {{"augment", c.augment}};
  if (!c.freeze.empty()) settings["freeze"] = c.freeze;
  if (c.model.name == "gpt") {
    settings["heads"] = std::to_string(c.model.heads > 0 ? c.model.heads : ddp::models::kGptHeads);
  }
  return settings;
}

// What changes the time of a step, for the comparison of runs.
std::map<std::string, std::string> report_settings_of(const CommandLine& c) {
  const auto yes_or_no = [](bool value) { return value ? "yes" : "no"; };
  return {{"comm_hook", c.comm_hook.empty() ? "off" : c.comm_hook},
          {"deterministic", yes_or_no(c.deterministic)},
          {"checkpoint_activations", yes_or_no(c.model.checkpoint_activations)}};
}

std::vector<std::string> units_of(const ddp::models::Model& model, const std::string& name) {
  auto units = model.units();
  if (!units.empty()) return units;
  throw ddp::UsageError(
      fmt::format("{} has no blocks that could be whole only while they compute; use --shard "
                  "gradients, or --model mlp or gpt",
                  name));
}

bool divides_weights(const CommandLine& c) {
  return c.train.shard == ddp::Shard::parameters || c.train.shard == ddp::Shard::hybrid;
}

bool has_bf16_weights(const CommandLine& c) {
  return c.train.param_type == ddp::amp::Precision::bf16;
}

// Frozen weights stay float32, but which are frozen is known only of the whole model.
bool can_be_built_in_parts(const CommandLine& c) {
  const bool converts_later = c.train.channels_last || (has_bf16_weights(c) && !c.freeze.empty());
  return divides_weights(c) && !converts_later;
}

std::shared_ptr<ddp::ShardedBuild> make_build(ddp::comm::World& world) {
  std::optional<torch::Device> device;
  if (const auto gpu = world.device()) device = ddp::cuda_device(*gpu);
  return std::make_shared<ddp::ShardedBuild>(world.group(), device);
}

// See Note [Models in stages].
std::shared_ptr<ddp::train::StagedModel> make_staged(const ddp::train::TrainOptions& options,
                                                     const ddp::models::ModelOptions& model_options,
                                                     const ddp::data::Dataset& data,
                                                     ddp::comm::World& world) {
  const auto build = [&](const std::function<void(torch::nn::Module&)>& built) {
    torch::manual_seed(options.seed);
    auto its_options = model_options;
    its_options.built = built;
    return ddp::models::make_model(its_options);
  };
  const auto sample = [&] {
    const auto batch = ddp::train::batch_per_rank(options, options.stages.replicas(world.size()));
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch, data.size())));
    std::iota(indices.begin(), indices.end(), 0);
    return data.get(indices);
  };
  std::optional<torch::Device> device;
  if (const auto gpu = world.device()) device = ddp::cuda_device(*gpu);
  return std::make_shared<ddp::train::StagedModel>(world.group(), options.stages, build, sample,
                                                   device);
}

// Collective.
void print_stages(const ddp::train::StagedModel& staged, const ddp::train::TrainOptions& options,
                  ddp::comm::World& world) {
  const auto hosts = ddp::train::node_names(world.group());
  if (!world.is_leader()) return;
  std::fputs(ddp::train::stage_table(staged.plan(), hosts).c_str(), stdout);
  std::fflush(stdout);
  if (options.evaluate_only) return;
  const auto idle = ddp::train::why_mostly_idle(staged.plan(), options.micro_batches);
  if (!idle.empty()) fmt::print(stderr, "warning: {}\n", idle);
}

// An evaluation takes the newest checkpoint of the directory, in which another run may be saving,
// and writes nothing there.
void only_read_checkpoints(ddp::train::CheckpointOptions& options) {
  const auto directory = std::exchange(options.directory, {});
  if (options.resume == "auto") options.evaluated_directory = directory;
}

// Returns the exit code.
int train(const CommandLine& c, ddp::comm::World& world) {
  if (c.threads > 0) torch::set_num_threads(c.threads);
  const auto data = ddp::data::open_data(c.data, c.data_options);
  auto model_options = c.model;
  const auto shape = data.train->shape();
  model_options.input = shape.input;
  model_options.classes = shape.classes;
  model_options.tokens = shape.tokens;
  auto options = c.train;
  if (options.evaluate_only) only_read_checkpoints(options.checkpoint);
  if (options.shard == ddp::Shard::hybrid && !c.train.reshard_after_forward && !world.device()) {
    throw ddp::UsageError(
        "--keep-after-forward is for GPUs with --shard hybrid: on CPUs, blocks are always whole");
  }
  if (can_be_built_in_parts(c)) {
    options.build = make_build(world);
    model_options.built = [&](torch::nn::Module& unit) {
      if (has_bf16_weights(c)) ddp::train::use_bf16_weights(unit);
      options.build->add(unit);
    };
  }
  torch::manual_seed(c.train.seed);
  std::shared_ptr<ddp::train::StagedModel> staged;
  if (options.stages.wanted()) staged = make_staged(options, model_options, *data.train, world);
  const auto model = staged ? staged->model() : ddp::models::make_model(model_options);
  const auto initial_weights = ddp::tools::initial_weights_of(c);
  const bool gathers = options.shard == ddp::Shard::parameters ||
                       (options.shard == ddp::Shard::hybrid && world.device());
  // A dry run predicts what they would cost.
  options.units = gathers ? units_of(*model, c.model.name) : model->units();
  const auto frozen = c.freeze.empty() ? 0 : ddp::train::freeze(*model, c.freeze);
  if (const auto gpu = world.device(); gpu && !staged) model->to(ddp::cuda_device(*gpu));

  ddp::train::Trainer trainer(world.group(),
                              {.program = program(),
                               .command = c.text,
                               .model_name = c.model.name,
                               .module = *model,
                               .forward = [&](const torch::Tensor& x) { return model->forward(x); },
                               .data = data,
                               .settings = settings_of(c),
                               .report_settings = report_settings_of(c),
                               .initial_weights = initial_weights,
                               .staged = staged},
                              options);
  if (world.is_leader()) print_start(c, options, world, *model, data, frozen);
  if (staged) print_stages(*staged, options, world);
  const auto result = trainer.fit();
  ddp::train::ignore_stop_signals();
  if (world.is_leader()) ddp::tools::print_result(result, c.train.dry_run);
  return result.exit_code();
}

// What does not fit on a GPU may fail before the first step, too.
int train_or_advise(const CommandLine& c, ddp::comm::World& world) {
  try {
    return train(c, world);
  } catch (const c10::Error& error) {
    ddp::train::throw_with_gpu_advice(error);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine c;
  if (const auto exit_code = ddp::tools::parse_train_command_line(argc, argv, c)) return *exit_code;
  // Startup takes minutes if many ranks load libraries and data. A signal that arrives meanwhile
  // must not kill the process, whose status would not be 75; it is handled after the first step.
  std::optional<ddp::train::StopSignals> signals;
  if (!c.train.checkpoint.directory.empty() && !c.train.dry_run && !c.train.evaluate_only)
    signals.emplace();
  return ddp::comm::run("ddp-train", ddp::tools::world_options_of(c),
                        [&](ddp::comm::World& world) { return train_or_advise(c, world); });
}
