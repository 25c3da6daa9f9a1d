// SPDX-License-Identifier: Apache-2.0
// Which rank has which pieces of a model that is cut into stages, and what that costs. No side
// effects, and no torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/pipeline/balance.h"
#include "ddp_runtime/train/options/stage_options.h"

namespace ddp::train {

struct PieceCost {
  std::string name;
  std::int64_t parameters = 0;
  double seconds = 0;  // of forward and backward on one micro-batch; 0: not measured
};

struct StagePlan {
  StageOptions options;
  std::vector<PieceCost> pieces;
  pipeline::Balance balance;

  int stage_of(std::size_t piece) const;
  std::size_t first_piece(int stage) const;
  std::vector<std::int64_t> parameters_of_stages() const;
};

// Throws UsageError if the pieces cannot be divided as the options say. Pieces have seconds if the
// balance is `time`.
StagePlan plan_stages(const StageOptions& options, std::vector<PieceCost> pieces);

// One line per rank of a pipeline and stage: who is where. `hosts`: of all ranks. Ends with a line
// break.
std::string stage_table(const StagePlan& plan, const std::vector<std::string>& hosts);

// A sentence about a step with fewer micro-batches than stages, most of which are then idle; empty
// if there are enough.
std::string why_mostly_idle(const StagePlan& plan, std::int64_t micro_batches);

// What a run measured.
struct StageTimesOfRun {
  std::vector<double> pieces;     // seconds per step and pipeline, forward and backward
  std::vector<double> computing;  // by rank: seconds per step
  std::vector<double> waiting;    // for neighbors
};

// The object `pipeline` of run.json.
nlohmann::json pipeline_of_report(const StagePlan& plan, std::int64_t micro_batches,
                                  const StageTimesOfRun& times);

}  // namespace ddp::train
