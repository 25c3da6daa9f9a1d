// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/net/measure/transport_kind.h"

namespace ddp::check {
namespace {

// The speed that one TCP stream on one core reliably reaches. A fast link that is limited by its
// core must not be reported as a bad cable.
constexpr double kOneStream = 1.25 * kGB;

// Describes the worst direction of the exchange, as evidence.
std::string describe(const PairsMeasured& measured, const PairResult& result) {
  const std::string& a = measured.nodes[slot(result.pair.a)];
  const std::string& b = measured.nodes[slot(result.pair.b)];
  if (!result.failure.empty()) return fmt::format("{} and {}: {}", a, b, result.failure);
  if (result.corrupt()) {
    return fmt::format("{} bytes corrupted on the way to {}, {} on the way to {}",
                       result.wrong_at_a, a, result.wrong_at_b, b);
  }
  return fmt::format("{} to {} {:.3g} GB/s, back {:.3g} GB/s", a, b, result.a_to_b / kGB,
                     result.b_to_a / kGB);
}

// Texts of the finding for a set of bad exchanges.
struct Charge {
  std::string check;
  std::string value;
  std::string expected;
  std::string rule;
  std::string action;
  Severity severity = Severity::critical;
};

Finding accuse(const PairsMeasured& measured, const Charge& charge, std::string evidence) {
  return {.check = measured.kind + "." + charge.check,
          .severity = charge.severity,
          .value = charge.value,
          .expected = charge.expected,
          .rule = charge.rule,
          .evidence = std::move(evidence),
          .action = charge.action};
}

using Bad = std::vector<const PairResult*>;

// The first bad exchange whose pair the predicate accepts; `bad` contains one.
template <class Concerns>
std::string example(const PairsMeasured& measured, const Bad& bad, const Concerns& concerns) {
  const auto found = std::find_if(bad.begin(), bad.end(),
                                  [&](const PairResult* result) { return concerns(result->pair); });
  return describe(measured, **found);
}

std::vector<Finding> accuse_nodes(const PairsMeasured& measured, const Charge& charge,
                                  const Bad& bad, const std::vector<int>& nodes) {
  std::vector<Finding> findings;
  for (const int node : nodes) {
    const auto concerns = [node](const Pair& p) { return p.a == node || p.b == node; };
    const auto count = std::count_if(
        bad.begin(), bad.end(), [&](const PairResult* result) { return concerns(result->pair); });
    findings.push_back(
        accuse(measured, charge,
               fmt::format("{} exchanges; {}", count, example(measured, bad, concerns))));
    findings.back().node = measured.nodes[slot(node)];
  }
  return findings;
}

std::vector<Finding> accuse_links(const PairsMeasured& measured, const Charge& charge,
                                  const Bad& bad, const std::vector<Pair>& links) {
  std::vector<Finding> findings;
  for (const Pair& link : links) {
    const auto concerns = [link](const Pair& p) { return p == link; };
    findings.push_back(
        accuse(measured, charge, example(measured, bad, concerns) + "; the faulty end is unknown"));
    findings.back().node = measured.nodes[slot(link.a)];
    findings.back().peer = measured.nodes[slot(link.b)];
  }
  return findings;
}

template <class IsBad, class IsGood>
std::vector<Finding> charge_pairs(const PairsMeasured& measured, const Charge& charge,
                                  const IsBad& is_bad, const IsGood& is_good,
                                  const std::vector<bool>& suspected = {}) {
  Bad bad;
  std::vector<Pair> bad_pairs;
  std::vector<Pair> good_pairs;
  for (const auto& result : measured.results) {
    if (is_good(result)) good_pairs.push_back(result.pair);
    if (!is_bad(result)) continue;
    bad.push_back(&result);
    bad_pairs.push_back(result.pair);
  }
  const auto nodes = static_cast<int>(measured.nodes.size());
  const Explanation explanation = explain(nodes, bad_pairs, good_pairs, suspected);
  const auto accused = explanation.nodes.size();
  // A setting that suits only a minority, such as its port in --hca, condemns no majority.
  if (explanation.everything || 2 * accused > measured.nodes.size()) {
    const std::string which = explanation.everything ? fmt::format("all {} pairs", bad.size())
                                                     : fmt::format("{} pairs of {} of {} nodes",
                                                                   bad.size(), accused, nodes);
    return {accuse(measured, charge,
                   fmt::format("{}, so the cause is the network or a setting, not one node; {}",
                               which, describe(measured, *bad.front())))};
  }
  std::vector<Finding> findings = accuse_nodes(measured, charge, bad, explanation.nodes);
  for (auto& finding : accuse_links(measured, charge, bad, explanation.links)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::optional<double> expected_rate(const PairsMeasured& measured, const Pair& pair) {
  const auto& a = measured.link_rate[slot(pair.a)];
  const auto& b = measured.link_rate[slot(pair.b)];
  if (!a || !b) return std::nullopt;
  return std::min({*a, *b, kOneStream});
}

// The worst outcome among the retests of the link's two ends.
Outcome worst_end(const PairsMeasured& measured, const Pair& link, const PeerRule& rule) {
  Outcome worst = Outcome::untested;
  for (const Retest& retest : measured.retests) {
    if (!retest.node || (*retest.node != link.a && *retest.node != link.b)) continue;
    worst = std::max(worst, outcome(retest, rule));
  }
  return worst;
}

// Whether the link loses packets all the time or, if `at_times`, whenever it is slow. A node that
// is only unsteady does not explain packets that one of its links loses all the time.
bool is_lossy(const PairsMeasured& measured, const PairResult& result, const PeerRule& rule,
              bool at_times) {
  if (result.lost < kLossy) return false;
  const Outcome end = worst_end(measured, result.pair, rule);
  if (end == Outcome::slow || (at_times && end == Outcome::unsteady)) return false;
  return std::any_of(measured.retests.begin(), measured.retests.end(), [&](const Retest& r) {
    if (r.node || r.link != result.pair) return false;
    return at_times ? loses_at_times(r, rule) : keeps_losing(r);
  });
}

}  // namespace

bool ends_at_bad_node(const PairsMeasured& measured, const Pair& link, const PeerRule& rule) {
  return worst_end(measured, link, rule) >= Outcome::unsteady;
}

std::vector<Finding> evaluate_failures(const PairsMeasured& measured, const PeerRule& rule) {
  Charge charge{"exchange", "failed", "data in both directions",
                "two nodes can exchange data within the time limit",
                "check cables, routes and firewalls between the nodes"};
  if (measured.kind == name_of(TransportKind::verbs)) {
    charge.action =
        "check cables, switches and addresses of this port on the nodes; until then "
        "NCCL_IB_HCA keeps jobs off it";
  }
  return charge_pairs(
      measured, charge, [](const PairResult& r) { return !r.failure.empty(); },
      [](const PairResult& r) { return r.measured(); },
      slow_nodes(static_cast<int>(measured.nodes.size()), measured.results, rule,
                 measured.classes));
}

std::vector<Finding> evaluate_data(const PairsMeasured& measured) {
  const Charge charge{"data", "corrupted in transit", "every byte arrives as sent",
                      "all bytes that arrive are compared with those sent",
                      "do not use the node; check its memory and network card"};
  return charge_pairs(
      measured, charge, [](const PairResult& r) { return r.corrupt(); },
      [](const PairResult& r) { return r.measured() && !r.corrupt(); });
}

std::vector<Finding> evaluate_link_rates(const PairsMeasured& measured, const LinkRule& rule) {
  const auto severity_of = [&](const PairResult& result) {
    const auto rate = expected_rate(measured, result.pair);
    if (!rate || !result.measured()) return Severity::unknown;
    return evaluate_by_link(std::min(result.a_to_b, result.b_to_a) / *rate, rule);
  };
  Charge charge{"link_rate", "slow",
                fmt::format("at least {:.0f} % of the link's rate", 100 * rule.warning),
                "large messages reach most of the link's rate, up to what one TCP stream can carry",
                "check the negotiated speed, duplex and error counters of the interfaces"};
  const auto is_good = [&](const PairResult& r) { return severity_of(r) == Severity::ok; };
  auto findings = charge_pairs(
      measured, charge, [&](const PairResult& r) { return severity_of(r) == Severity::critical; },
      is_good);
  charge.severity = Severity::warning;
  for (auto& finding : charge_pairs(
           measured, charge,
           [&](const PairResult& r) { return severity_of(r) == Severity::warning; }, is_good)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> evaluate_loss(const PairsMeasured& measured, const PeerRule& rule) {
  std::vector<Finding> findings;
  for (const bool at_times : {false, true}) {
    const auto lossy = [&](const PairResult& result) {
      return is_lossy(measured, result, rule, at_times);
    };
    const auto sound = [&](const PairResult& result) {
      return result.measured() && !is_lossy(measured, result, rule, false) &&
             !is_lossy(measured, result, rule, true);
    };
    double worst = 0;
    for (const auto& result : measured.results) {
      if (lossy(result)) worst = std::max(worst, result.lost);
    }
    Charge charge{"loss", fmt::format("{:.2g} % of the data lost", 100 * worst),
                  fmt::format("less than {:g} %", 100 * kLossy),
                  "TCP retransmissions show repeated packet loss",
                  "check cables, transceivers and the error counters of the ports on the path"};
    if (at_times) {
      charge.rule = "TCP retransmissions show packet loss whenever the link is slow";
      charge.severity = Severity::warning;
    }
    for (auto& finding : charge_pairs(measured, charge, lossy, sound)) {
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

}  // namespace ddp::check
