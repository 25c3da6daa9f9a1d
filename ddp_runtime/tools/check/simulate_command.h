// SPDX-License-Identifier: Apache-2.0
// `ddp-check simulate`: measures how reliably `net` locates bad nodes in simulated clusters.
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

// Adds the command; its options are stored in `arguments`.
void add_simulate(CLI::App& app, SimulateArguments& arguments);

// Prints the detection rates and the resources used. Throws UsageError unless most nodes are
// healthy.
int run_simulate(const SimulateArguments& arguments);

}  // namespace ddp::tools
