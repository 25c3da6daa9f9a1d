// SPDX-License-Identifier: Apache-2.0
// The differences between a resumed run and the run that saved the checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// The options that affect the results of a run, by name. Options without effect, such as the decay
// of a constant schedule, are left out.
nlohmann::json run_settings(const TrainOptions& options);

// The options that have to be the same on all ranks: those of run_settings(), and those that decide
// in which steps the ranks call which collectives.
nlohmann::json shared_settings(const TrainOptions& options);

// Throws UsageError if a checkpoint cannot hold this description of a run. Called at the start: at
// the first save it would be too late.
void require_storable(const nlohmann::json& run);

struct RunDifferences {
  std::vector<std::string> lines;  // one per difference, in the order of the names
  // Why the run must not resume from this checkpoint; empty if it may. In the middle of an epoch,
  // different samples or a different order would show some samples twice and some never.
  std::string refusal;
  bool other_data = false;  // evaluations of the two runs cannot be compared
};

// `saved` and `now` describe the runs, by name. Names that occur in only one description are not
// compared, because the other may come from a different version. `mid_epoch`: the checkpoint is
// from the middle of an epoch.
RunDifferences run_differences(const nlohmann::json& saved, const nlohmann::json& now,
                               bool mid_epoch);

}  // namespace ddp::train
