// SPDX-License-Identifier: Apache-2.0
// What the supervisor may do. The defaults are those of `ddp-run`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

struct Settings {
  std::size_t min_nodes = 1;
  std::size_t max_nodes = 1;
  int ranks_per_node = 1;
  // Numbers of nodes with which the program can run; empty: all from min_nodes to max_nodes.
  std::vector<std::size_t> sizes = {};

  int max_restarts = 3;
  Seconds refill_after = 1800;  // of progress, for which one restart is given back
  int max_no_progress = 3;      // generations in a row that end without a step
  int max_same_failure = 3;

  // Generations in a row of which no rank has started: the launcher fails, not the program.
  int max_failed_launches = 3;
  Seconds launch_pause = 0;  // after the first of them, doubled each time
  // For the first rank to start, which may have to wait for SLURM, and for the others after it.
  Seconds first_start_time = 600;
  Seconds start_time = 60;

  Seconds collect = 0.5;     // ranks of one node die one after the other
  Seconds grace = 2;         // for processes to end by themselves
  Seconds save_grace = 600;  // the same, if they are to save
  Seconds silence = 10;      // after which a silent rank is lost
  Seconds check_time = 30;   // after which a check counts as failed
  Seconds wait_for_nodes = 600;
  Seconds grow_every = 600;

  Seconds cooldown = 60;  // of an excluded node, doubled each time
  Seconds max_cooldown = 3600;
  int strikes = 3;
  Seconds strike_lasts = 3600;

  bool check_nodes = true;
  bool can_requeue = false;
};

// Throws UsageError if they contradict each other, or need more nodes than there are.
void require_possible(const Settings& settings, std::size_t nodes);

// The largest allowed number of nodes that is at most `available`; 0 if there is none.
std::size_t largest_size(const Settings& settings, std::size_t available);

}  // namespace ddp::elastic
