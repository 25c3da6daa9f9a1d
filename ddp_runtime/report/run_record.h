// One run.json, schema slurm-ddp/run/1, as values. Figures that the run could not know (null) are
// absent here, and so are non-finite ones.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/report/phase.h"

namespace ddp::report {

// Seconds of one training step. The parts are means and sum to `mean`: in run.json exposed_comm
// holds `waiting` as well, here it does not.
struct StepSeconds {
  std::optional<double> p50;
  std::optional<double> p95;
  std::optional<double> mean;
  std::array<std::optional<double>, kPhases> parts;  // by Phase

  // The mean that no part accounts for; negative if the parts are more than the whole. Absent
  // where the mean is, or less than a hundredth of it: that is rounding.
  std::optional<double> unaccounted() const;
  double part(Phase phase) const { return parts[index_of(phase)].value_or(0); }
};

struct RankRecord {
  int rank = 0;
  std::string node;
  StepSeconds step;
  std::vector<int> processors;  // it may use, ascending; empty if not known
  std::optional<int> threads;
  std::optional<double> late_share;  // of the compared steps, those in which others waited longer
  std::optional<double> compared_steps;
  std::optional<double> preemptions;  // a second: the system took its processor away
  std::optional<double> peak_memory_bytes;
};

// Where the time of the process went, in seconds; the parts sum to the total.
struct WallSeconds {
  std::optional<double> total;
  std::optional<double> startup;
  std::optional<double> steps;
  std::optional<double> evaluation;
  std::optional<double> checkpoint;  // outside of the steps
  std::optional<double> rest;
};

// Which part of the run the process has trained, and what came before it.
struct Coverage {
  std::optional<double> first_step;
  std::optional<double> last_step;
  std::size_t earlier_processes = 0;
  double rows_missing = 0;  // of steps.csv
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
  bool waiting_estimated = false;  // by what the ranks' exposed communication differs in
  std::string outcome;  // "finished", "interrupted", "failed", "running"; empty: not known
  std::string outcome_reason;
  WallSeconds wall;
  Coverage covers;
  std::optional<double> bytes_per_step;
  std::optional<double> busbw_GBps;
  std::optional<double> overlap_ratio;  // part of the communication that backward hides, 0 to 1
  std::vector<RankRecord> ranks;
  std::map<std::string, std::string> environment;
};

// Reads DIR/run.json, or the file itself if that is what `path` is. Keys it does not know are
// ignored. Throws InputError, naming the file and every key that is missing or wrong.
RunRecord read_run(const std::string& path);

// The same from text; `source` names it in errors.
RunRecord parse_run(std::string_view text, const std::string& source);

}  // namespace ddp::report
