// The locator over simulated fleets with known faults: how often it leaves out exactly the bad
// nodes, how often it blames somebody who is good or says OK although something is bad, and how
// long it takes. The decisions are those of the check itself: PairSession and evaluate_pairs.
#pragma once

#include <cstdint>
#include <string_view>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"

namespace ddp::check {

// What is drawn for each direction of an exchange by itself, `level` being Simulation::noise.
enum class NoiseModel : std::uint8_t {
  gauss,      // normal, `level` is the standard deviation
  onesided,   // disturbances only slow: exponential, `level` is the mean
  lognormal,  // `level` is the standard deviation of the logarithm
  tail,       // 2 % normal, and a part `level` of the directions at 0.2 to 0.9 of the speed
  leaf,       // gauss; nodes hang on switches whose uplinks carry a part of what they send
  hetero,     // gauss; one node in seven has a link of half the rate, as the kernel tells
};

enum class FaultModel : std::uint8_t {
  node,          // sends and receives at bad_speed
  send,          // only sends
  receive,       // only receives
  link,          // between two nodes
  loss,          // a link that loses 5 % of the data
  intermittent,  // a node, in a part `duty` of its exchanges
  leaf,          // all nodes of a switch, on the way to other switches
};

struct Simulation {
  int nodes = 1024;
  int bad = 8;             // nodes; links for link and loss; switches for leaf
  double bad_speed = 0.7;  // as a part of a good one's
  int rounds = 0;          // 0: as many as the check takes
  bool retests = true;
  NoiseModel model = NoiseModel::gauss;
  FaultModel fault = FaultModel::node;
  double noise = 0.02;
  double duty = 0.5;        // of intermittent faults
  int leaf_nodes = 16;      // below a switch
  double uplink_ratio = 1;  // what the nodes of a switch could send, to what its uplink carries
  double congested = 0.03;  // part of the exchanges of the rounds at 0.6, by traffic of others
  int trials = 100;
  std::uint64_t seed = 1;
};

// Sets the model from "gauss", "onesided", "lognormal", "tail", "leaf:SIZE:RATIO" or "hetero", and
// the fault from "node", "send", "receive", "link", "loss", "intermittent:DUTY" or "leaf". Throws
// UsageError.
void set_model(std::string_view text, Simulation& simulation);
void set_fault(std::string_view text, Simulation& simulation);

// Numbers of trials, unless it says otherwise. A WARNING leaves nobody out.
struct SimulationResult {
  int trials = 0;
  int right = 0;          // the exclude list has exactly the bad nodes; of bad links: none
  int exact = 0;          // right, and nothing else was named; of links: all that were measured
  int named = 0;          // everything bad was named, by a WARNING at least
  int false_alarms = 0;   // a good node, or a good link, was named
  int wrong_exclude = 0;  // a good node was in the exclude list
  int unknown = 0;        // the verdict was UNKNOWN
  int silent = 0;         // the verdict was OK, although something that was measured was bad
  double limit = 0;       // median of the detection limits
  double steps = 0;       // mean number of rounds and retests
  double slowest_seconds = 0;  // of the locator, without the simulation of the measurements
};

// The same numbers with every standard library.
SimulationResult simulate(const Simulation& simulation, const PairRules& rules);

}  // namespace ddp::check
