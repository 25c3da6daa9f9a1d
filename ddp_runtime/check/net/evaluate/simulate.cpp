// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/check/findings/pattern.h"
#include "ddp_runtime/check/net/locate/pair_session.h"

namespace ddp::check {
namespace {

constexpr double kCongestedSpeed = 0.6;
constexpr double kLostOnBadLink = 0.05;
constexpr double kSlowClassSpeed = 0.5;
constexpr double kSlowClassPart = 1.0 / 7;
constexpr double kLeastSpeed = 1e-6;
constexpr double kTailNoise = 0.02;

// Implements its own distributions, because those of <random> differ between standard libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t next() { return pattern_word(seed_, drawn_++); }
  double uniform() { return (static_cast<double>(next() >> 11U) + 0.5) * 0x1.0p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  int below(int most) {
    return static_cast<int>(next() % static_cast<std::uint64_t>(std::max(most, 1)));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

int switches_of(const Simulation& simulation) {
  return (simulation.nodes + simulation.leaf_nodes - 1) / simulation.leaf_nodes;
}

class Fleet {
 public:
  Fleet(const Simulation& simulation, Random& random) : simulation_(simulation), random_(random) {
    const int nodes = simulation.nodes;
    if (simulation.model == NoiseModel::hetero) {
      for (int node = 0; node < nodes; ++node) {
        classes_.push_back(random_.uniform() < kSlowClassPart ? 0 : 1);
      }
    }
    while (static_cast<int>(bad_links_.size() + bad_things_.size()) < simulation.bad) draw_fault();
  }

  const std::set<int>& bad_nodes() const noexcept { return bad_nodes_; }
  const std::set<Pair>& bad_links() const noexcept { return bad_links_; }
  const Classes& classes() const noexcept { return classes_; }

  std::vector<PairResult> measure(const SessionStep& step) {
    const auto flows = flows_of_uplinks(step.pairs);
    std::vector<PairResult> results;
    results.reserve(step.pairs.size());
    for (const Pair& pair : step.pairs) results.push_back(exchange(step, pair, flows));
    return results;
  }

 private:
  using Flows = std::map<int, int>;  // number of pairs that cross the uplink of each switch

  void draw_fault() {
    const int nodes = simulation_.nodes;
    const auto fault = simulation_.fault;
    if (fault == FaultModel::link || fault == FaultModel::loss) {
      const int one = random_.below(nodes);
      const int other = random_.below(nodes);
      if (one != other) bad_links_.insert(make_pair_of(one, other));
    } else if (fault == FaultModel::leaf) {
      const int leaf = random_.below(switches_of(simulation_));
      bad_things_.insert(leaf);
      for (int node = 0; node < nodes; ++node) {
        if (leaf_of(node) == leaf) bad_nodes_.insert(node);
      }
    } else {
      const int node = random_.below(nodes);
      bad_things_.insert(node);
      bad_nodes_.insert(node);
    }
  }

  int leaf_of(int node) const { return node / simulation_.leaf_nodes; }

  Flows flows_of_uplinks(const Round& round) const {
    Flows flows;
    if (simulation_.model != NoiseModel::leaf) return flows;
    for (const auto& [a, b] : round) {
      if (leaf_of(a) == leaf_of(b)) continue;
      ++flows[leaf_of(a)];
      ++flows[leaf_of(b)];
    }
    return flows;
  }

  // The capacity of a link without faults, as a fraction of a fast link. At any time, each
  // direction of an uplink serves half of the pairs.
  double capacity(const Pair& pair, const Flows& flows) const {
    const bool slow_class =
        !classes_.empty() && std::min(class_of(classes_, pair.a), class_of(classes_, pair.b)) == 0;
    double speed = slow_class ? kSlowClassSpeed : 1;
    if (flows.empty() || leaf_of(pair.a) == leaf_of(pair.b)) return speed;
    for (const int leaf : {leaf_of(pair.a), leaf_of(pair.b)}) {
      const double carried = simulation_.leaf_nodes / simulation_.uplink_ratio;
      speed = std::min(speed, carried / std::max(1.0, flows.at(leaf) / 2.0));
    }
    return speed;
  }

  double noise() {
    const double level = simulation_.noise;
    switch (simulation_.model) {
      case NoiseModel::onesided:
        return 1 + level * std::log(random_.uniform());
      case NoiseModel::lognormal:
        return std::exp(level * random_.normal());
      case NoiseModel::tail: {
        const double speed = 1 + kTailNoise * random_.normal();
        return random_.uniform() < level ? speed * (0.2 + 0.7 * random_.uniform()) : speed;
      }
      default:
        return 1 + level * random_.normal();
    }
  }

  // The fraction of the node's sending or receiving speed that remains under its fault in an
  // exchange with another node.
  double left_by(int node, int other, Direction direction, bool acts) const {
    if (!bad_nodes_.contains(node)) return 1;
    const auto fault = simulation_.fault;
    if (fault == FaultModel::send && direction == Direction::receive) return 1;
    if (fault == FaultModel::receive && direction == Direction::send) return 1;
    if (fault == FaultModel::leaf && leaf_of(node) == leaf_of(other)) return 1;
    if (fault == FaultModel::intermittent && !acts) return 1;
    return simulation_.bad_speed;
  }

  PairResult exchange(const SessionStep& step, const Pair& pair, const Flows& flows) {
    const bool in_round = step.kind == SessionStep::Kind::round;
    const bool congested = random_.uniform() < (in_round ? simulation_.congested : 0);
    const double speed = capacity(pair, flows) * (congested ? kCongestedSpeed : 1);
    const bool a_acts = random_.uniform() < simulation_.duty;
    const bool b_acts = random_.uniform() < simulation_.duty;
    const bool bad_link = bad_links_.contains(pair);
    const double link =
        bad_link && simulation_.fault == FaultModel::link ? simulation_.bad_speed : 1;
    const auto way = [&](int from, bool from_acts, int to, bool to_acts) {
      const double left = std::min({link, left_by(from, to, Direction::send, from_acts),
                                    left_by(to, from, Direction::receive, to_acts)});
      return std::max(std::min(speed, left * class_speed(from, to)) * noise(), kLeastSpeed);
    };
    PairResult result;
    result.pair = pair;
    result.a_to_b = way(pair.a, a_acts, pair.b, b_acts);
    result.b_to_a = way(pair.b, b_acts, pair.a, a_acts);
    result.latency_seconds = 1e-5;
    if (bad_link && simulation_.fault == FaultModel::loss) result.lost = kLostOnBadLink;
    return result;
  }

  // A bad node is slow relative to its own class.
  double class_speed(int one, int other) const {
    if (classes_.empty()) return 1;
    return std::min(class_of(classes_, one), class_of(classes_, other)) == 0 ? kSlowClassSpeed : 1;
  }

  const Simulation& simulation_;
  Random& random_;
  Classes classes_;
  std::set<int> bad_things_;  // nodes or switches, as drawn
  std::set<int> bad_nodes_;
  std::set<Pair> bad_links_;
};

using Names = std::set<std::string>;

std::string link_name(const std::string& one, const std::string& other) {
  return one + " " + other;
}

// Names of nodes, and of links as "a b".
Names named_by(const std::vector<Finding>& findings) {
  Names names;
  for (const auto& finding : findings) {
    const bool bad =
        finding.severity == Severity::warning || finding.severity == Severity::critical;
    if (!bad) continue;
    names.insert(finding.peer.empty() ? finding.node : link_name(finding.node, finding.peer));
  }
  return names;
}

Names excluded_by(const std::vector<Finding>& findings) {
  Names names;
  for (const auto& finding : findings) {
    if (finding.severity == Severity::critical && finding.peer.empty()) names.insert(finding.node);
  }
  return names;
}

bool includes(const Names& all, const Names& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// The faults of one cluster, by name.
struct Truth {
  Names nodes;
  Names links;  // links that were measured
};

Truth truth_of(const Fleet& fleet, const PairsMeasured& measured) {
  const auto name = [&measured](int node) {
    return measured.nodes[static_cast<std::size_t>(node)];
  };
  Truth truth;
  for (const int node : fleet.bad_nodes()) truth.nodes.insert(name(node));
  for (const auto& result : measured.results) {
    if (fleet.bad_links().contains(result.pair)) {
      truth.links.insert(link_name(name(result.pair.a), name(result.pair.b)));
    }
  }
  return truth;
}

void count(const Truth& truth, const std::vector<Finding>& judged, SimulationResult& result) {
  Findings findings;
  findings.add(judged);
  const Names named = named_by(judged);
  const Names excluded = excluded_by(judged);
  Names all = truth.nodes;
  all.insert(truth.links.begin(), truth.links.end());
  const bool right = excluded == truth.nodes;
  result.right += right ? 1 : 0;
  result.exact += right && named == all ? 1 : 0;
  result.named += includes(named, all) ? 1 : 0;
  result.false_alarms += includes(all, named) ? 0 : 1;
  result.wrong_exclude += includes(truth.nodes, excluded) ? 0 : 1;
  result.unknown += findings.severity() == Severity::unknown ? 1 : 0;
  result.silent += findings.severity() == Severity::ok && !all.empty() ? 1 : 0;
}

std::vector<std::string> names_of_nodes(int nodes) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(nodes));
  for (int i = 0; i < nodes; ++i) names.push_back(fmt::format("n{}", i));
  return names;
}

// Runs fault localization on one cluster. Returns its time without the simulated measurements.
double run_locator(const Simulation& simulation, const PeerRule& rule, Fleet& fleet,
                   std::uint64_t seed, PairsMeasured& measured, double& steps) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  PairSession session({.nodes = simulation.nodes,
                       .classes = fleet.classes(),
                       .rounds = simulation.rounds,
                       .seed = seed,
                       .rule = rule,
                       .retests = simulation.retests});
  std::chrono::duration<double> seconds{};
  while (const auto step = session.next([](int) { return true; })) {
    seconds += Clock::now() - start;
    const auto results = fleet.measure(*step);
    start = Clock::now();
    session.take(results);
    ++steps;
  }
  measured.classes = fleet.classes();
  measured.results = session.results();
  measured.retests = session.retests();
  seconds += Clock::now() - start;
  return seconds.count();
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(':');
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

double number_of(std::string_view text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // False for NaN, too.
  const bool in_range = value >= least && value <= most;
  if (error != std::errc() || end != text.data() + text.size() || !in_range) {
    throw UsageError(fmt::format("'{}' is not a number between {} and {}", text, least, most));
  }
  return value;
}

}  // namespace

void set_model(std::string_view text, Simulation& simulation) {
  constexpr std::array<std::pair<std::string_view, NoiseModel>, 5> kModels{
      {{"gauss", NoiseModel::gauss},
       {"onesided", NoiseModel::onesided},
       {"lognormal", NoiseModel::lognormal},
       {"tail", NoiseModel::tail},
       {"hetero", NoiseModel::hetero}}};
  const auto parts = parts_of(text);
  if (parts.front() == "leaf" && parts.size() == 3) {
    simulation.model = NoiseModel::leaf;
    simulation.leaf_nodes = static_cast<int>(number_of(parts[1], 2, 1000));
    simulation.uplink_ratio = number_of(parts[2], 1, 100);
    return;
  }
  for (const auto& [name, model] : kModels) {
    if (text != name) continue;
    simulation.model = model;
    return;
  }
  throw UsageError(fmt::format(
      "--model '{}' is not one of gauss, onesided, lognormal, tail, hetero and leaf:SIZE:RATIO",
      text));
}

void set_fault(std::string_view text, Simulation& simulation) {
  constexpr std::array<std::pair<std::string_view, FaultModel>, 6> kFaults{
      {{"node", FaultModel::node},
       {"send", FaultModel::send},
       {"receive", FaultModel::receive},
       {"link", FaultModel::link},
       {"loss", FaultModel::loss},
       {"leaf", FaultModel::leaf}}};
  const auto parts = parts_of(text);
  if (parts.front() == "intermittent" && parts.size() == 2) {
    simulation.fault = FaultModel::intermittent;
    simulation.duty = number_of(parts[1], 0, 1);
    return;
  }
  for (const auto& [name, fault] : kFaults) {
    if (text != name) continue;
    simulation.fault = fault;
    return;
  }
  throw UsageError(
      fmt::format("--fault '{}' is not one of node, send, receive, link, loss, leaf and "
                  "intermittent:DUTY",
                  text));
}

SimulationResult simulate(const Simulation& simulation, const PairRules& rules) {
  // Each fault of a fleet hits a different node, link or switch, so there must be enough of them.
  const int things =
      simulation.fault == FaultModel::leaf ? switches_of(simulation) : simulation.nodes;
  if (2 * simulation.bad >= things) {
    throw UsageError(
        fmt::format("--bad must be less than half of the {} {}: most of them must be good", things,
                    simulation.fault == FaultModel::leaf ? "switches" : "nodes"));
  }
  Random random(simulation.seed);
  PairsMeasured measured;
  measured.kind = "tcp";
  measured.nodes = names_of_nodes(simulation.nodes);
  measured.already_flagged.assign(measured.nodes.size(), false);
  measured.link_rate.assign(measured.nodes.size(), std::nullopt);
  SimulationResult result;
  std::vector<double> limits;
  for (; result.trials < simulation.trials; ++result.trials) {
    Fleet fleet(simulation, random);
    double seconds =
        run_locator(simulation, rules.peers, fleet, random.next(), measured, result.steps);
    const auto start = std::chrono::steady_clock::now();
    const auto findings = evaluate_pairs(measured, rules);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.slowest_seconds = std::max(result.slowest_seconds, seconds);
    limits.push_back(detection_limit_of(measured, rules.peers).value_or(1));
    count(truth_of(fleet, measured), findings, result);
  }
  if (!limits.empty()) result.limit = median(limits);
  result.steps /= std::max(1, result.trials);
  return result;
}

}  // namespace ddp::check
