// How a run that resumes differs from the one that saved.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/train/options.h"

namespace ddp::train {

// What of the options decides which numbers a run computes, name by name. An option that has no
// effect, such as the decay of a constant schedule, is left out.
nlohmann::json run_settings(const TrainOptions& options);

struct RunDifferences {
  std::vector<std::string> lines;  // one for each, in the order of the names
  // Why the two do not belong together; empty if they may. In the middle of an epoch another order
  // of samples, or other samples, would show some twice and some never.
  std::string refusal;
};

// `saved` and `now` describe the runs, name by name; what only one of them knows is not compared,
// since the other may be of another version. `mid_epoch`: samples of the epoch were taken already.
RunDifferences run_differences(const nlohmann::json& saved, const nlohmann::json& now,
                               bool mid_epoch);

}  // namespace ddp::train
