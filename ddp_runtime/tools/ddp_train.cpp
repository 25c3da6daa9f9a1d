// SPDX-License-Identifier: Apache-2.0
// ddp-train: trains one of the project's models on one or more ranks.
#include <fmt/format.h>
#include <torch/torch.h>

#include <map>
#include <optional>
#include <string>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/tools/train_command_line.h"
#include "ddp_runtime/train/progress.h"
#include "ddp_runtime/train/run_table.h"
#include "ddp_runtime/train/step_boundary.h"
#include "ddp_runtime/train/trainer.h"
#include "slurm_ddp/version.h"

namespace {

using CommandLine = ddp::tools::TrainCommandLine;

void print_start(const CommandLine& c, ddp::comm::World& world, const torch::nn::Module& model,
                 const ddp::data::DataPair& data) {
  const ddp::train::RunHeader header{fmt::format("ddp-train {}", ddp::kVersion),
                                     c.model.name,
                                     ddp::models::parameter_count(model),
                                     data.name,
                                     data.train->size(),
                                     data.evaluation->size(),
                                     world.size(),
                                     std::string(world.group().backend()),
                                     torch::get_num_threads()};
  fmt::print("{}", ddp::train::run_table(header, c.train));
  std::fflush(stdout);
}

double peak_memory_mib(const ddp::train::RunResult& result) {
  return static_cast<double>(result.peak_memory_bytes) / 1048576;
}

void print_dry_run(const ddp::train::RunResult& result) {
  const double seconds = result.median_step_seconds;
  fmt::print(
      "dry run: one step took {:.3g} s, memory {:.0f} MiB per rank; the run would have {} steps "
      "and take about {}; the first step is slower than the others\n",
      seconds, peak_memory_mib(result), result.planned_steps,
      ddp::train::duration_text(seconds * static_cast<double>(result.planned_steps)));
}

void print_end(const ddp::train::RunResult& result) {
  fmt::print(
      "done: {} steps, train loss {:.4f}, eval loss {:.4f}, accuracy {:.4f}, memory {:.0f} MiB per "
      "rank, parameters 0x{:08x}\n",
      result.step, result.train_loss, result.evaluation.loss, result.evaluation.accuracy,
      peak_memory_mib(result), result.parameters_crc32c);
  if (!result.checkpoint.empty()) fmt::print("checkpoint: {}\n", result.checkpoint.string());
  if (!result.best_checkpoint.empty()) {
    fmt::print("best checkpoint: {}\n", result.best_checkpoint.string());
  }
  if (!result.report_file.empty()) fmt::print("report: {}\n", result.report_file.string());
}

// EX_TEMPFAIL of sysexits.h, which means try again; jobscripts/preemptible.sbatch does so.
constexpr int kInterrupted = 75;

void print_interrupted(const ddp::train::RunResult& result) {
  fmt::print(
      "stopped at step {} of {}, because {}; checkpoint: {}; run the same command to continue\n",
      result.step, result.planned_steps, result.interrupted,
      result.checkpoint.empty() ? "none" : result.checkpoint.string());
}

// What changes a run although the arrays of its checkpoints keep their shapes.
std::map<std::string, std::string> settings_of(const CommandLine& c) {
  std::map<std::string, std::string> settings = {{"augment", c.augment}};
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

// Returns the exit code.
int train(const CommandLine& c, ddp::comm::World& world) {
  if (c.threads > 0) torch::set_num_threads(c.threads);
  const auto data = ddp::data::open_data(c.data, c.data_options);
  auto model_options = c.model;
  const auto shape = data.train->shape();
  model_options.input = shape.input;
  model_options.classes = shape.classes;
  model_options.tokens = shape.tokens;
  torch::manual_seed(c.train.seed);
  const auto model = ddp::models::make_model(model_options);

  ddp::train::Trainer trainer(world.group(),
                              {.program = fmt::format("ddp-train {}", ddp::kVersion),
                               .command = c.text,
                               .model_name = c.model.name,
                               .module = *model,
                               .forward = [&](const torch::Tensor& x) { return model->forward(x); },
                               .data = data,
                               .settings = settings_of(c),
                               .report_settings = report_settings_of(c)},
                              c.train);
  if (world.is_leader()) print_start(c, world, *model, data);
  const auto result = trainer.fit();
  const int exit_code = result.interrupted.empty() ? 0 : kInterrupted;
  if (!world.is_leader()) return exit_code;
  if (!result.interrupted.empty()) {
    print_interrupted(result);
  } else if (result.taken == 0) {
    return exit_code;  // the trainer has already reported it
  } else if (c.train.dry_run) {
    print_dry_run(result);
  } else {
    print_end(result);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine c;
  if (const auto exit_code = ddp::tools::parse_train_command_line(argc, argv, c)) return *exit_code;
  // The start takes minutes where many ranks load libraries and data: a signal that arrives
  // meanwhile is answered after the first step, not by dying with a status that is not 75.
  std::optional<ddp::train::StopSignals> signals;
  if (!c.train.checkpoint.directory.empty() && !c.train.dry_run) signals.emplace();
  int exit_code = 0;
  const int failure = ddp::comm::run("ddp-train", ddp::tools::world_options_of(c),
                                     [&](ddp::comm::World& world) { exit_code = train(c, world); });
  return failure != 0 ? failure : exit_code;
}
