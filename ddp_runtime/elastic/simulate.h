// SPDX-License-Identifier: Apache-2.0
// How much of its time a job makes progress although nodes fail: the supervisor itself, in a world
// of random failures. Pure.
//
// ETTR is the effective training time ratio: the time of the steps that count, as if all nodes took
// part, divided by the time that passes.
#pragma once

#include <cstdint>

#include "ddp_runtime/elastic/events.h"
#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

struct SimulatedJob {
  std::size_t nodes = 128;  // without spares
  std::size_t spares = 0;
  std::size_t min_nodes = 0;  // 0: nine tenths of `nodes`
  Seconds length = 30 * 86400.0;

  Seconds node_mtbf = 6334 * 3600.0;  // Llama 3: 419 interruptions in 54 days of 16,384 GPUs
  double crashes = 0.35;              // part of the failures in which only a process dies
  double hangs = 0.10;                // in which a process stops, and its node is found bad
  Seconds repair = 12 * 3600.0;

  Seconds stall = 10;    // that a checkpoint costs
  Seconds interval = 0;  // between checkpoints; 0: young_interval()
  Seconds restart = 90;  // from the start of processes to the first step
  Seconds ending = 5;    // until the processes of a generation are gone
  Seconds checking = 2;  // of `ddp-check node`
};

struct SimulatedOutcome {
  double ettr = 0;
  double per_node = 0;  // ETTR per node of the allocation, spares included
  int failures = 0;
  int generations = 0;
  bool finished_early = false;  // given up, or requeued
};

// The interval between checkpoints with the least loss: sqrt(2 x stall x mean time between failures
// of the job) (Young, 1974).
Seconds young_interval(const SimulatedJob& job);

// Throws UsageError for a job that cannot be.
SimulatedOutcome simulate(const SimulatedJob& job, std::uint64_t seed);

}  // namespace ddp::elastic
