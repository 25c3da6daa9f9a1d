// SPDX-License-Identifier: Apache-2.0
// The command line of ddp-train.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/tools/local_steps_arguments.h"
#include "ddp_runtime/train/model/initialize.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::tools {

// The weights to start from, as typed.
struct InitArguments {
  std::string from;  // empty: none
  std::optional<std::string> prefix;
  std::string map;
  std::string only;
  std::string skip;
  std::string strict = "all";
};

struct TrainCommandLine {
  std::string text;  // as typed, for the report
  std::string data = "digits";
  std::string precision = "fp32";
  std::string param_type = "fp32";
  std::string device = "cpu";
  std::string backend = "auto";
  std::string schedule = "constant";
  std::string on_nan = "stop";
  std::string graph = "off";
  std::string shard = "none";
  std::string pipeline_schedule;  // empty: 1f1b, or interleaved with several chunks
  std::optional<std::string> stage_balance;
  bool keep_after_forward = false;
  std::optional<std::string> offload;
  std::string augment = "none";
  std::string checkpoint_every = "epoch";
  std::string checkpoint_memory;
  std::string mtbf;
  std::string keep_every;
  std::string after_save_limit = "1h";
  std::string comm_hook = "off";
  std::string reduce_type = "auto";
  double bucket_mb = 0;  // 0: not given
  double checkpoint_copy_mb = 8192;
  double checkpoint_share_mb = 64;
  double timeout_seconds = 600;
  double start_timeout_seconds = 600;
  double silence_seconds = std::chrono::duration<double>(comm::LivenessLimits().silence).count();
  int threads = 0;
  bool deterministic = false;
  std::string network = "assume";
  std::string failure_dump;
  LocalStepsArguments local_steps;
  InitArguments init;
  std::string freeze;
  ddp::models::ModelOptions model;
  ddp::data::DataOptions data_options;
  ddp::train::TrainOptions train;
};

// A command line without a run.
struct NoRun {
  int exit_code = 0;  // 0: --help or --version; 2: an error
  std::string text;   // of an error: one sentence
};

// Reads a command line without the program's name, and --config's file, and checks both.
std::variant<TrainCommandLine, NoRun> read_train_command_line(
    const std::vector<std::string>& arguments);

// The same for this process. Returns the exit code if there is nothing to run: rank 0 then has
// printed why. Otherwise makes the report directory, where a later failure is recorded.
std::optional<int> parse_train_command_line(int argc, char** argv, TrainCommandLine& line);

}  // namespace ddp::tools
