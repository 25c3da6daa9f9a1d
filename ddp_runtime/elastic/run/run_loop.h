// SPDX-License-Identifier: Apache-2.0
// ddp-run: brings events to the supervisor, and carries out its actions.
#pragma once

#include <string>

#include "ddp_runtime/elastic/placement.h"
#include "ddp_runtime/elastic/run/journal.h"
#include "ddp_runtime/elastic/run/launcher.h"
#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

struct RunPlan {
  Settings settings;
  LaunchPlan launch;          // `allocation` are the nodes
  std::string own_node = {};  // SLURM's name of the node on which ddp-run runs; empty if it is none
  Switches switches = {};
  std::string check = "ddp-check";
  JournalPlan journal = {};
};

// Returns the exit code of ddp-run. Throws UsageError and RuntimeError.
int run_with_restarts(const RunPlan& plan);

}  // namespace ddp::elastic
