#include "ddp_runtime/check/net/judge/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/measure/pattern.h"

namespace ddp::check {
namespace {

constexpr double kCongestedSpeed = 0.6;

// Not those of <random>, whose distributions differ between standard libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t next() { return pattern_word(seed_, drawn_++); }
  double uniform() { return (static_cast<double>(next() >> 11U) + 0.5) * 0x1.0p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

std::set<int> draw_bad(const Simulation& simulation, Random& random) {
  std::set<int> bad;
  while (bad.size() < static_cast<std::size_t>(simulation.bad)) {
    bad.insert(static_cast<int>(random.next() % static_cast<std::uint64_t>(simulation.nodes)));
  }
  return bad;
}

class Fleet {
 public:
  Fleet(const Simulation& simulation, Random& random)
      : simulation_(simulation), random_(random), bad_(draw_bad(simulation, random)) {}

  const std::set<int>& bad() const noexcept { return bad_; }

  PairResult measure(const Pair& pair, double congested) {
    double speed = bad_.contains(pair.a) || bad_.contains(pair.b) ? simulation_.bad_speed : 1;
    speed *= 1 + simulation_.noise * random_.normal();
    if (random_.uniform() < congested) speed *= kCongestedSpeed;
    PairResult result;
    result.pair = pair;
    result.a_to_b = result.b_to_a = std::max(speed, 1e-6);
    return result;
  }

  void retry(PairsMeasured& measured, const PeerRule& rule) {
    measured.retrials = suspects(simulation_.nodes, measured.results, rule);
    const auto trusted = trusted_nodes(simulation_.nodes, measured.results, measured.retrials);
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const auto reference = reference_for(trusted, measured.retrials, attempt);
      if (!reference) return;
      const PairResult beside = measure(*reference, 0);
      for (auto& suspect : measured.retrials) {
        const auto pair = pair_for(suspect, trusted, attempt);
        if (!pair || opinion(suspect, rule) != Opinion::open) continue;
        suspect.references.insert(suspect.references.end(), {beside.a_to_b, beside.b_to_a});
        suspect.add(measure(*pair, 0));
      }
    }
  }

 private:
  const Simulation& simulation_;
  Random& random_;
  std::set<int> bad_;
};

// Names of nodes, and of links as "a b".
std::set<std::string> named(const Findings& findings) {
  std::set<std::string> names;
  for (const auto& finding : findings.all()) {
    if (finding.severity == Severity::ok) continue;
    names.insert(finding.peer.empty() ? finding.node : finding.node + " " + finding.peer);
  }
  return names;
}

}  // namespace

SimulationResult simulate(const Simulation& simulation, const PairRules& rules) {
  Random random(simulation.seed);
  PairsMeasured measured;
  measured.kind = "tcp";
  for (int i = 0; i < simulation.nodes; ++i) measured.nodes.push_back(fmt::format("n{}", i));
  measured.accused.assign(measured.nodes.size(), false);
  measured.link_rate.assign(measured.nodes.size(), std::nullopt);
  SimulationResult result;
  for (; result.trials < simulation.trials; ++result.trials) {
    Fleet fleet(simulation, random);
    measured.results.clear();
    measured.retrials.clear();
    for (const auto& round : random_rounds(simulation.nodes, simulation.rounds, random.next())) {
      for (const auto& pair : round) {
        measured.results.push_back(fleet.measure(pair, simulation.congested));
      }
    }
    const auto start = std::chrono::steady_clock::now();
    if (simulation.retrials) fleet.retry(measured, rules.peers);
    Findings findings;
    findings.add(judge_pairs(measured, rules));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    result.slowest_seconds = std::max(result.slowest_seconds, seconds.count());
    const auto names = named(findings);
    std::set<std::string> truth;
    for (const int node : fleet.bad()) truth.insert(measured.nodes[static_cast<std::size_t>(node)]);
    result.exact += names == truth ? 1 : 0;
    result.false_alarms +=
        std::includes(truth.begin(), truth.end(), names.begin(), names.end()) ? 0 : 1;
    result.missed += std::includes(names.begin(), names.end(), truth.begin(), truth.end()) ? 0 : 1;
  }
  return result;
}

}  // namespace ddp::check
