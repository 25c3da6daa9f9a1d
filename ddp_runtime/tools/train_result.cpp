// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/train_result.h"

#include <fmt/format.h>

#include <string>

#include "ddp_runtime/train/run/progress.h"

namespace ddp::tools {
namespace {

double peak_memory_mib(const train::RunResult& result) {
  return static_cast<double>(result.peak_memory_bytes) / 1048576;
}

void print_dry_run(const train::RunResult& result) {
  const double seconds = result.median_step_seconds;
  fmt::print("{}", result.strategies);
  fmt::print(
      "dry run: one step took {:.3g} s, memory {:.0f} MiB per rank; the run would have {} steps "
      "and take about {}; the first step is slower than the others\n",
      seconds, peak_memory_mib(result), result.planned_steps,
      train::duration_text(seconds * static_cast<double>(result.planned_steps)));
}

void print_end(const train::RunResult& result) {
  // A process that only evaluates may not know it.
  const auto train_loss = result.taken > 0 || result.train_loss != 0
                              ? fmt::format("train loss {}, ", train::value_text(result.train_loss))
                              : std::string();
  fmt::print(
      "done: {} steps, {}eval loss {}, accuracy {}, memory {:.0f} MiB per rank, parameters "
      "0x{:08x}\n",
      result.step, train_loss, train::value_text(result.evaluation.loss),
      train::value_text(result.evaluation.accuracy), peak_memory_mib(result),
      result.parameters_crc32c);
  if (!result.checkpoint.empty()) fmt::print("checkpoint: {}\n", result.checkpoint.string());
  if (!result.best_checkpoint.empty()) {
    fmt::print("best checkpoint: {}\n", result.best_checkpoint.string());
  }
  if (!result.report_file.empty()) fmt::print("report: {}\n", result.report_file.string());
}

void print_interrupted(const train::RunResult& result) {
  fmt::print(
      "stopped at step {} of {}, because {}; checkpoint: {}; run the same command to continue\n",
      result.step, result.planned_steps, result.interrupted,
      result.checkpoint.empty() ? "none" : result.checkpoint.string());
}

}  // namespace

void print_result(const train::RunResult& result, bool dry_run) {
  if (!result.interrupted.empty()) return print_interrupted(result);
  if (!result.finished) return;
  if (dry_run) return print_dry_run(result);
  print_end(result);
}

}  // namespace ddp::tools
