// SPDX-License-Identifier: Apache-2.0
// The outcome of a training run. Does not need torch, so that code that prints it compiles quickly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ddp_runtime/train/objective/evaluation_result.h"

namespace ddp::train {

struct RunResult {
  std::int64_t step = 0;   // optimizer steps since the beginning of the run
  std::int64_t taken = 0;  // steps by this process; 0 if the run had already finished
  Evaluation evaluation;   // 0 targets mean that there was no evaluation
  double train_loss = 0;
  std::uint32_t parameters_crc32c = 0;
  std::int64_t planned_steps = 0;  // of the whole run, ignoring early stopping and dry runs
  bool stopped_early = false;      // options.patience was exhausted, or a callback asked for it
  // Why the run saved a checkpoint and stopped early, to be resumed later; there is no evaluation
  // in that case. Empty if the run finished.
  std::string interrupted;
  // This process ended the run: it took the last steps, or made an evaluation in which an earlier
  // process was stopped.
  bool finished = false;
  // For main(): 75 (EX_TEMPFAIL of sysexits.h: try again) if the run was interrupted, otherwise 0.
  // jobscripts/preemptible.sbatch requeues a job that exits with 75.
  int exit_code() const noexcept { return interrupted.empty() ? 0 : 75; }

  // On rank 0 only:
  // The newest in the directory of the run; empty if none, and without such a directory.
  std::filesystem::path checkpoint;
  std::filesystem::path best_checkpoint;  // with keep_best, if this process found a better one
  std::filesystem::path report_file;      // run.json; empty if this process did not write one
  std::string report;                     // of this process, JSON; empty if no step was taken
  // In a dry run: a table of what each strategy of --shard should cost; empty if that is unknown.
  std::string strategies;
  double median_step_seconds = 0;      // 0 if no step was taken
  std::int64_t peak_memory_bytes = 0;  // of the rank that used the most; 0 if no step was taken
};

}  // namespace ddp::train
