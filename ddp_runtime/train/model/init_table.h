// SPDX-License-Identifier: Apache-2.0
// The table that says where the initial values of a model come from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddp_runtime/train/model/init_plan.h"

namespace ddp::train {

// What an initialization did.
struct InitReport {
  std::filesystem::path source;           // the file or the checkpoint
  std::string map;                        // the name of the map; empty without one
  std::vector<ckpt::ArrayHeader> arrays;  // of the source
  InitPlan plan;                          // its indices refer to `arrays`
  bool leaves_average = false;            // ArraySource::leaves_average()
};

// Returns a title, a line for each tensor of the model (its shape, and the array that it was taken
// from or the reason why it keeps its initial value), and a line for each array without a place in
// the model.
std::string init_table(const InitReport& report);

}  // namespace ddp::train
