// SPDX-License-Identifier: Apache-2.0
// The facts and the outcome of a run, and a report made of them in one call, for custom training
// loops. run_reporter.cpp defines the functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/objective/evaluation_result.h"

namespace ddp::train {

struct RunFacts {
  std::string program;  // "ddp-train 0.1.0"
  std::string command;
  std::string model;
  std::string data;
  std::int64_t parameters = 0;
  std::int64_t global_batch = 0;
  std::int64_t epochs = 0;
  double started_unix = 0;
  int threads = 0;  // threads that this rank computes with; 0: unknown
  // What the run was asked to do, by name: strings, numbers and booleans. Null: unknown.
  nlohmann::json settings = nullptr;
  std::string device = "cpu";  // or "cuda": where the model is
  // What the ranks divide, and what that should cost: see shard_prediction.h. Null: unknown.
  nlohmann::json sharding = nullptr;
};

struct StepLoss {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;  // mean over all ranks
  double learning_rate = 0;
  double seconds = 0;  // duration on rank 0
};

struct RunOutcome {
  std::int64_t steps = 0;  // by this process; a resumed run counts its own
  double train_loss = 0;   // mean over the last epoch
  std::optional<Evaluation> evaluation;
  std::optional<std::uint32_t> parameters_crc32c;  // absent while the run is in progress
  std::optional<double> best_eval_loss;  // at the end of an epoch, since the beginning of the run
};

// Collective. Returns the report on rank 0, null on the others.
nlohmann::json make_run_report(comm::Group& group, const RunFacts& facts, const RunOutcome& outcome,
                               const std::vector<profile::StepRecord>& steps);

// On rank 0: writes run.json, steps.csv and trace.json (the last steps, for chrome://tracing) to
// `directory`, which is created if it does not exist. Each file is written completely or not at
// all. Throws RuntimeError on failure.
void write_run_files(const std::filesystem::path& directory, const nlohmann::json& report,
                     const std::vector<StepLoss>& losses, const std::string& trace);

}  // namespace ddp::train
