// The locator over simulated fleets with known bad nodes: how often it names exactly those, how
// often somebody who is good, and how long it takes.
//
// The model: a bad node runs at a part of the speed of the others, a pair at the smaller of its
// nodes' speeds with normally distributed noise, and a part of the exchanges of the rounds is
// slowed to 0.6 by traffic that has nothing to do with the nodes. Retrials happen in a quiet
// network.
#pragma once

#include <cstdint>

#include "ddp_runtime/check/net/judge/judge_pairs.h"

namespace ddp::check {

struct Simulation {
  int nodes = 1024;
  int bad = 8;
  double bad_speed = 0.7;  // of a good node's
  int rounds = 3;
  bool retrials = true;
  double noise = 0.02;      // standard deviation
  double congested = 0.03;  // of the exchanges
  int trials = 100;
  std::uint64_t seed = 1;
};

struct SimulationResult {
  int trials = 0;
  int exact = 0;               // trials in which exactly the bad nodes were named
  int false_alarms = 0;        // trials in which a good node, or a link, was named
  int missed = 0;              // trials in which a bad node was not named
  double slowest_seconds = 0;  // of the locator, from the measurements to the findings
};

// The same numbers with every standard library.
SimulationResult simulate(const Simulation& simulation, const PairRules& rules);

}  // namespace ddp::check
