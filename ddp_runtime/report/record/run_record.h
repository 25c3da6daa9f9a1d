// SPDX-License-Identifier: Apache-2.0
// One run.json, schema slurm-ddp/run/1, as values. Unknown figures (null) are nullopt here, and so
// are non-finite ones.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/report/record/phase.h"
#include "ddp_runtime/report/record/pipeline_record.h"
#include "ddp_runtime/report/record/resilience_record.h"

namespace ddp::report {

// Seconds of one training step. The parts are means and sum to `mean`: unlike in run.json,
// exposed_comm does not include `waiting`.
struct StepSeconds {
  std::optional<double> p50;
  std::optional<double> p95;
  std::optional<double> mean;
  std::array<std::optional<double>, kPhases> parts;  // by Phase

  // The part of the mean that no phase accounts for; negative if the phases exceed the whole.
  // nullopt if the mean is unknown, or if the difference is less than a hundredth of the mean,
  // which counts as rounding.
  std::optional<double> unaccounted() const;
  double part(Phase phase) const { return parts[index_of(phase)].value_or(0); }
};

struct RankRecord {
  int rank = 0;
  std::string node;
  StepSeconds step;
  std::vector<int> processors;  // CPUs it may use, ascending; empty if unknown
  std::optional<int> threads;
  std::optional<double>
      late_share;  // fraction of the compared steps in which the others waited longer
  std::optional<double> compared_steps;
  std::optional<double> preemptions;  // per second, by the kernel
  std::optional<double> peak_memory_bytes;
};

// The wall time of the process by part, in seconds; the parts sum to the total.
struct WallSeconds {
  std::optional<double> total;
  std::optional<double> startup;
  std::optional<double> steps;
  std::optional<double> evaluation;
  std::optional<double> checkpoint;  // outside of the steps
  std::optional<double> rest;
};

// The part of the run that the process trained, and the parts before it.
struct Coverage {
  std::optional<double> first_step;
  std::optional<double> last_step;
  std::size_t earlier_processes = 0;
  double rows_missing = 0;  // rows missing in steps.csv
};

// What the ranks divide, and its memory per rank.
struct ShardingRecord {
  std::string strategy;  // "none", "optimizer", ...; empty: unknown
  std::optional<double> divided_by;
  std::optional<double> bytes_between_steps;  // predicted, as are the next two
  std::optional<double> bytes_in_step;        // in addition
  std::optional<double> bytes_sent_per_step;
  std::optional<double> measured_peak_bytes;
};

struct RunRecord {
  std::string source;  // the directory or file it was read from, as given
  std::string program;
  std::string command;
  std::optional<double> started_unix;
  int world_size = 1;
  int nodes = 1;
  std::string backend;
  std::string device;
  std::string model;
  std::string data;
  std::optional<double> parameters;  // count
  std::optional<double> global_batch;
  std::optional<double> steps;
  std::optional<double> samples_per_second;
  std::optional<double> train_loss;
  std::optional<double> eval_loss;
  std::optional<double> eval_accuracy;
  std::string parameters_crc32c;
  StepSeconds step;
  bool waiting_estimated =
      false;            // derived from the differences in the ranks' exposed communication
  std::string outcome;  // "finished", "interrupted", "failed", "running"; empty: unknown
  std::string outcome_reason;
  WallSeconds wall;
  Coverage covers;
  ShardingRecord sharding;
  std::optional<PipelineRecord> pipeline;      // nullopt: each rank has the whole model
  std::optional<ResilienceRecord> resilience;  // nullopt: not under ddp-run
  std::optional<double> bytes_per_step;
  std::optional<double> busbw_GBps;
  std::optional<double> overlap_ratio;  // fraction of the communication that backward hides, 0 to 1
  std::vector<RankRecord> ranks;
  std::map<std::string, std::string> settings;  // as text; empty in files of older versions
  std::map<std::string, std::string> environment;
};

// Whether the waiting of two runs can be compared: not if it is an estimate in only one of them. A
// single rank waits for no other.
bool have_alike_waiting(const RunRecord& a, const RunRecord& b);

// Reads DIR/run.json, or the file itself if `path` is a file. Ignores unknown keys. Throws
// an InputError that names the file and every missing or invalid key.
RunRecord read_run(const std::string& path);

// Parses a report from a string; `source` names it in errors.
RunRecord parse_run(std::string_view text, const std::string& source);

}  // namespace ddp::report
