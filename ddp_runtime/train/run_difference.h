// SPDX-License-Identifier: Apache-2.0
// The differences between a resumed run and the run that saved the checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/train/options.h"

namespace ddp::train {

// The options that affect the numbers a run computes, by name. An option without effect, such as
// the decay of a constant schedule, is left out.
nlohmann::json run_settings(const TrainOptions& options);

// The options that have to be the same on all ranks: those above, and those that decide in which
// steps the ranks do something together.
nlohmann::json shared_settings(const TrainOptions& options);

struct RunDifferences {
  std::vector<std::string> lines;  // one per difference, in the order of the names
  // Why the two must not be combined; empty if they may. In the middle of an epoch, another order
  // of samples, or other samples, would show some twice and some never.
  std::string refusal;
};

// `saved` and `now` describe the runs, by name; names that only one of them has are not compared,
// since the other may come from another version. `mid_epoch`: samples of the epoch have been used
// already.
RunDifferences run_differences(const nlohmann::json& saved, const nlohmann::json& now,
                               bool mid_epoch);

}  // namespace ddp::train
