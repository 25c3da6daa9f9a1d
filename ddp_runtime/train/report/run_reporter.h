// SPDX-License-Identifier: Apache-2.0
// run.json, schema slurm-ddp/run/1: one file per run, read by ddp-report and users' own tools.
//
// Note [A report at any moment]
// A run that is killed writes nothing more, so its report is kept up to date while it trains: about
// every `interval_seconds` all ranks send rank 0 their times, and rank 0 adds the rows of steps.csv
// and replaces run.json. They also do so with the checkpoint after which nothing is left to train:
// before it at the end of an epoch, and just after it within one, where the step must have ended
// first. If they are killed later, no process trains a step of which it could report. A run that
// fails or is asked to stop updates it once more at its end. "outcome" in run.json records how it
// ended.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/run_log.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/profile/step_totals.h"
#include "ddp_runtime/train/report/report_file.h"
#include "ddp_runtime/train/report/run_outcome.h"
#include "ddp_runtime/train/report/step_exchange.h"

namespace ddp::train {

// The directory of the report, and the part of the run that this process trains.
struct ReportTarget {
  std::filesystem::path directory;  // empty: no report
  std::int64_t first_step = 0;      // steps completed by earlier processes; 0: not resumed
  double interval_seconds = 30;
};

// Collective. The machine of each rank, as in run.json.
std::vector<std::string> node_names(comm::Group& group);
// Collective. The number of machines on which the ranks are, as in run.json.
int count_nodes(comm::Group& group);

// Keeps the report of a run up to date. Every rank has one; rank 0 writes.
class RunReporter {
 public:
  enum class WallPart : std::uint8_t { evaluation, checkpoint };
  enum class Ending : std::uint8_t { finished, interrupted };

  // Measures time outside the steps until it goes out of scope.
  class WallSpan {
   public:
    WallSpan(RunReporter& reporter, WallPart part)
        : reporter_(reporter), part_(part), begin_(profile::Clock::now()) {}
    WallSpan(const WallSpan&) = delete;
    WallSpan& operator=(const WallSpan&) = delete;
    ~WallSpan();

   private:
    RunReporter& reporter_;
    WallPart part_;
    profile::Clock::time_point begin_;
  };

  // Create it just before the first step: everything before counts as start-up time. `synchronous`:
  // the ranks are in the same step, so their steps can be compared. `log` takes the warnings.
  RunReporter(comm::Group& group, RunFacts facts, ReportTarget target,
              const profile::StepRecorder& recorder, bool synchronous, LogFunction log = {});

  // Call after each step. Collective if the ranks are synchronous and there is a report to write.
  // Returns whether it is time for update(), the same on all ranks.
  bool after_step();
  // Takes rows whose losses are means over the ranks, for the table of steps. Call after each step,
  // even without rows: asynchronous ranks write their table here.
  void add_rows(std::span<const StepLoss> rows);
  // Writes the rows so far, which a later process of the run will not repeat, because a checkpoint
  // has their steps. Logs a warning if that is not possible.
  void keep_rows();
  // Collective: updates the report on disk. Logs a warning if it cannot be written.
  void update(const RunOutcome& so_far);
  // The same between steps, for a checkpoint. Collective if the ranks are synchronous; others write
  // only their rows.
  void update_with_save(const RunOutcome& so_far);
  // The same if this process has not written a report yet, or if it is old.
  void update_if_old(const RunOutcome& so_far);
  // Collective, once: returns the report on rank 0, null on the others. Logs a warning if it cannot
  // be written. A process that trained no steps leaves the earlier processes' report unchanged,
  // unless they did not end the run, and it does: then it adds the ending.
  nlohmann::json finish(const RunOutcome& outcome, Ending ending, const std::string& reason,
                        const nlohmann::json& more = {});
  // Collective, before the first step: whether finish() would write: there is no report, or there
  // is one of earlier processes of this run, none of which has ended it.
  bool lacks_ending();
  // On rank 0, when the run cannot continue: writes a report from rank 0's data alone. Does not
  // report errors of its own.
  void failed(const RunOutcome& so_far, const std::string& reason) noexcept;

  WallSpan measure(WallPart part) { return {*this, part}; }
  // run.json, if this process has written it.
  const std::filesystem::path& file() const noexcept { return file_; }

 private:
  bool writes() const noexcept;
  bool compares() const noexcept;
  void sum_steps();
  std::int64_t age_of_comparison() const noexcept;
  void compare(std::int64_t age);
  const profile::StepRecord& record_of(std::int64_t step) const;
  profile::StepTotals totals() const;
  nlohmann::json gather(const RunOutcome& outcome);
  nlohmann::json wall_seconds() const;
  void complete(nlohmann::json& report, const char* outcome, const std::string& reason) const;
  void write_rows();
  void warn_once(const std::exception& error);
  void write_report(const nlohmann::json& report);
  void write_last_rows();
  nlohmann::json unfinished_earlier() const;
  void write_last(const nlohmann::json& report, const std::string& trace);

  comm::Group& group_;
  RunFacts facts_;
  ReportTarget target_;
  const profile::StepRecorder& recorder_;
  bool synchronous_;
  RunLog log_;
  StepExchange exchange_;
  profile::StepTotals totals_;  // of the first `summed_` steps
  std::int64_t summed_ = 0;
  std::int64_t steps_ = 0;  // steps of this process
  std::int64_t steps_at_update_ = 0;
  std::optional<profile::Clock::time_point> updated_;
  std::int64_t switches_before_ = 0;

  profile::Clock::time_point process_start_;
  double startup_seconds_ = 0;
  std::array<double, 2> outside_{};  // by WallPart

  nlohmann::json earlier_;     // earlier processes of this run
  nlohmann::json resilience_;  // what ddp-run has added to their report
  nlohmann::json ranks_;       // as last gathered; null before the first time
  std::optional<LineFile> csv_;
  std::int64_t rows_missing_ = 0;
  std::vector<StepLoss> pending_rows_;
  std::int64_t generation_ = 1;  // of the rows
  profile::Clock::time_point rows_written_;
  bool warned_ = false;
  std::filesystem::path file_;
};

}  // namespace ddp::train
