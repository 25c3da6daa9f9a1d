// run.json, schema slurm-ddp/run/1: one file per run that ddp-report and people's own tools read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/evaluation.h"

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
};

struct StepLoss {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;  // mean over all ranks
  double learning_rate = 0;
  double seconds = 0;  // of rank 0
};

struct RunOutcome {
  std::int64_t steps = 0;  // of this process; a resumed run counts its own
  double train_loss = 0;   // mean over the last epoch
  std::optional<Evaluation> evaluation;
  std::uint32_t parameters_crc32c = 0;
  std::optional<double> best_eval_loss;  // at the end of an epoch, since the very start
};

// Of the float32 values of all parameters, in name order.
std::uint32_t parameters_crc32c(std::vector<NamedTensor> parameters);

// Collective. Rank 0 gets the report, the others null.
nlohmann::json make_run_report(comm::Group& group, const RunFacts& facts, const RunOutcome& outcome,
                               const std::vector<profile::StepRecord>& steps);

// Rank 0: run.json, steps.csv and trace.json (the last steps, for chrome://tracing) in `directory`,
// each written to a temporary name first. Throws RuntimeError if that cannot be done.
void write_run_files(const std::filesystem::path& directory, const nlohmann::json& report,
                     const std::vector<StepLoss>& losses, const std::string& trace);

}  // namespace ddp::train
