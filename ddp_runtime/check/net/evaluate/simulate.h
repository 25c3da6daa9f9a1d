// SPDX-License-Identifier: Apache-2.0
// Runs fault localization on simulated clusters with known faults. Counts how often it excludes
// exactly the bad nodes, blames a healthy node, or reports OK despite a fault, and measures its run
// time. It runs the decision code of the real check: PairSession and evaluate_pairs.
#pragma once

#include <cstdint>
#include <string_view>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"

namespace ddp::check {

// Noise model, drawn for each direction of an exchange independently; `level` is Simulation::noise.
enum class NoiseModel : std::uint8_t {
  gauss,      // normal; `level` is the standard deviation
  onesided,   // disturbances only slow down: exponential, with mean `level`
  lognormal,  // `level` is the standard deviation of the logarithm
  tail,       // normal with a standard deviation of 2 %, but a fraction `level` of the directions
              // runs at 0.2 to 0.9 of the speed
  leaf,       // gauss; nodes are below switches whose uplinks are oversubscribed
  hetero,     // gauss; one node in seven has, and reports, a link of half the rate
};

enum class FaultModel : std::uint8_t {
  node,          // sends and receives at bad_speed
  send,          // sends at bad_speed
  receive,       // receives at bad_speed
  link,          // a link between two nodes
  loss,          // a link that loses 5 % of the data
  intermittent,  // a node, in a fraction `duty` of its exchanges
  leaf,          // all nodes below a switch, on paths to other switches
};

struct Simulation {
  int nodes = 1024;
  int bad = 8;             // number of bad nodes, links (for link and loss) or switches (for leaf)
  double bad_speed = 0.7;  // relative to a healthy node
  int rounds = 0;          // 0: chosen by the check
  bool retests = true;
  NoiseModel model = NoiseModel::gauss;
  FaultModel fault = FaultModel::node;
  double noise = 0.02;
  double duty = 0.5;        // duty cycle of intermittent faults
  int leaf_nodes = 16;      // nodes below a switch
  double uplink_ratio = 1;  // oversubscription: node bandwidth below a switch / uplink bandwidth
  double congested = 0.03;  // fraction of the rounds' exchanges that other traffic slows to 60 %
  int trials = 100;
  std::uint64_t seed = 1;
};

// Parses the model, "gauss", "onesided", "lognormal", "tail", "leaf:SIZE:RATIO" or "hetero", and
// the fault, "node", "send", "receive", "link", "loss", "intermittent:DUTY" or "leaf". Throws
// UsageError.
void set_model(std::string_view text, Simulation& simulation);
void set_fault(std::string_view text, Simulation& simulation);

// Numbers of trials unless a comment says otherwise. A WARNING does not exclude a node.
struct SimulationResult {
  int trials = 0;
  int right = 0;          // the exclude list has exactly the bad nodes; for link faults, no nodes
  int exact = 0;          // right, and nothing else named; for links, all measured bad links named
  int named = 0;          // all faults were named, at least by a WARNING
  int false_alarms = 0;   // a healthy node or link was named
  int wrong_exclude = 0;  // a healthy node was in the exclude list
  int unknown = 0;        // the verdict was UNKNOWN
  int silent = 0;         // the verdict was OK although a fault was measured
  double limit = 0;       // median of the detection limits
  double steps = 0;       // mean number of rounds and retests
  double slowest_seconds = 0;  // longest fault localization, without the simulated measurements
};

// The numbers do not depend on the standard library.
SimulationResult simulate(const Simulation& simulation, const PairRules& rules);

}  // namespace ddp::check
