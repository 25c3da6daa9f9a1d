// `ddp-check simulate`: how much the locator of `net` can be relied upon.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "ddp_runtime/check/net/evaluate/simulate.h"

namespace ddp::tools {

struct SimulateArguments {
  check::Simulation simulation;
  std::string model = "gauss";
  std::string fault = "node";
  check::PairRules rules;
};

// Adds the command; what its options say goes to `arguments`.
void add_simulate(CLI::App& app, SimulateArguments& arguments);

// Prints the rates and what they took. Throws UsageError if not most nodes are good.
int run_simulate(const SimulateArguments& arguments);

}  // namespace ddp::tools
