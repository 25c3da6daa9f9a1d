// SPDX-License-Identifier: Apache-2.0
// The options of ddp-train and ddp-bench about local steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ddp_runtime/parallel/local/local_options.h"

namespace CLI {
class App;
}

namespace ddp::tools {

// As typed.
struct LocalStepsArguments {
  std::int64_t every = 0;  // 0: no local steps
  std::optional<std::int64_t> from;
  std::optional<std::string> within;
  std::optional<std::string> outer;
  std::optional<double> outer_learning_rate;
  std::optional<double> outer_momentum;
};

// Adds them to the current group of options.
void add_local_steps_options(CLI::App& app, LocalStepsArguments& arguments);

// Nullopt without local steps. Throws UsageError.
std::optional<LocalStepsOptions> local_steps_of(const LocalStepsArguments& arguments);

}  // namespace ddp::tools
