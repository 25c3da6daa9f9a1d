#include "ddp_runtime/check/net/judge/judge_pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp_runtime/check/byte_units.h"

namespace ddp::check {
namespace {

// More than one TCP stream of one core can be counted on to carry, so that a fast link does not
// accuse the processor of being a bad cable.
constexpr double kOneStream = 1.25 * kGB;

std::size_t at(int node) {
  return static_cast<std::size_t>(node);
}

// The direction that failed worst, for evidence.
std::string describe(const PairsMeasured& measured, const PairResult& result) {
  const std::string& a = measured.nodes[at(result.pair.a)];
  const std::string& b = measured.nodes[at(result.pair.b)];
  if (!result.failure.empty()) return fmt::format("{} with {}: {}", a, b, result.failure);
  if (result.corrupt()) {
    return fmt::format("{} bytes changed on the way to {}, {} on the way to {}", result.wrong_at_a,
                       a, result.wrong_at_b, b);
  }
  return fmt::format("{} to {} {:.3g} GB/s, back {:.3g} GB/s", a, b, result.a_to_b / kGB,
                     result.b_to_a / kGB);
}

// What some exchanges are accused of.
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

// The first of the bad exchanges that a predicate on pairs accepts; `bad` has one.
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
    findings.back().node = measured.nodes[at(node)];
  }
  return findings;
}

std::vector<Finding> accuse_links(const PairsMeasured& measured, const Charge& charge,
                                  const Bad& bad, const std::vector<Pair>& links) {
  std::vector<Finding> findings;
  for (const Pair& link : links) {
    const auto concerns = [link](const Pair& p) { return p == link; };
    findings.push_back(
        accuse(measured, charge,
               example(measured, bad, concerns) + "; which end is at fault cannot be told"));
    findings.back().node = measured.nodes[at(link.a)];
    findings.back().peer = measured.nodes[at(link.b)];
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
  if (explanation.everything) {
    return {accuse(measured, charge,
                   fmt::format("all {} pairs, so it is the network or a setting and not one node; "
                               "{}",
                               bad.size(), describe(measured, *bad.front())))};
  }
  std::vector<Finding> findings = accuse_nodes(measured, charge, bad, explanation.nodes);
  for (auto& finding : accuse_links(measured, charge, bad, explanation.links)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> judge_failures(const PairsMeasured& measured, const PeerRule& rule) {
  const Charge charge{"exchange", "failed", "data in both directions",
                      "two nodes can exchange data within the time limit",
                      "check cables, routes and firewalls between the nodes"};
  return charge_pairs(
      measured, charge, [](const PairResult& r) { return !r.failure.empty(); },
      [](const PairResult& r) { return r.measured(); },
      slow_nodes(static_cast<int>(measured.nodes.size()), measured.results, rule));
}

std::vector<Finding> judge_data(const PairsMeasured& measured) {
  const Charge charge{"data", "changed on the way", "every byte as it was sent",
                      "all bytes that arrive are compared with those sent",
                      "do not use it: check memory and network card"};
  return charge_pairs(
      measured, charge, [](const PairResult& r) { return r.corrupt(); },
      [](const PairResult& r) { return r.measured() && !r.corrupt(); });
}

std::optional<double> expected_rate(const PairsMeasured& measured, const Pair& pair) {
  const auto& a = measured.link_rate[at(pair.a)];
  const auto& b = measured.link_rate[at(pair.b)];
  if (!a || !b) return std::nullopt;
  return std::min({*a, *b, kOneStream});
}

std::vector<Finding> judge_link_rates(const PairsMeasured& measured, const LinkRule& rule) {
  const auto severity_of = [&](const PairResult& result) {
    const auto rate = expected_rate(measured, result.pair);
    if (!rate || !result.measured()) return Severity::unknown;
    return judge_by_link(std::min(result.a_to_b, result.b_to_a) / *rate, rule);
  };
  Charge charge{"link_rate", "slow",
                fmt::format("at least {:.0f} % of the link's rate", 100 * rule.warning),
                "large messages reach most of the link's rate, up to what one TCP stream carries",
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

std::vector<double> present(const std::vector<std::optional<double>>& values) {
  std::vector<double> result;
  for (const auto& value : values) {
    if (value) result.push_back(*value);
  }
  return result;
}

// How many exchanges of each node worked.
std::vector<int> count_exchanges(const PairsMeasured& measured) {
  std::vector<int> counts(measured.nodes.size(), 0);
  for (const auto& result : measured.results) {
    if (!result.measured()) continue;
    ++counts[at(result.pair.a)];
    ++counts[at(result.pair.b)];
  }
  return counts;
}

// The retrial of a node; nothing if it was not suspected or could not be measured again.
const Retrial* retrial_of(const PairsMeasured& measured, int node) {
  const auto found =
      std::find_if(measured.retrials.begin(), measured.retrials.end(), [node](const Retrial& r) {
        return r.node == node && !r.send.empty() && !r.references.empty();
      });
  return found == measured.retrials.end() ? nullptr : &*found;
}

void tell_retrial(const Retrial& retrial, Direction direction, const PeerRule& rule,
                  Finding& finding) {
  const auto& speeds = direction == Direction::send ? retrial.send : retrial.receive;
  const PeerThresholds thresholds = thresholds_of(retrial.references, rule);
  finding.severity = opinion(retrial, rule) == Opinion::cleared
                         ? Severity::ok
                         : severity_of(retrial, direction, rule);
  finding.value = *std::max_element(speeds.begin(), speeds.end()) / kGB;
  finding.expected = fmt::format("at least {:.3g} GB/s", thresholds.warning / kGB);
  finding.rule =
      "measured again alone, in turn with good pairs: best against their median less "
      "max(3.5 * 1.4826 * MAD, part of the median)";
  finding.evidence = fmt::format(
      "best of {} with the rest of the network quiet; good pairs in between reach "
      "{:.3g} GB/s",
      speeds.size(), thresholds.median / kGB);
  if (finding.severity != Severity::ok) finding.action = "exclude the node and check its network";
}

std::vector<Finding> judge_direction(const PairsMeasured& measured, Direction direction,
                                     const PairRules& rules) {
  const auto nodes = static_cast<int>(measured.nodes.size());
  const auto best = best_speeds(nodes, measured.results, direction);
  const auto speeds = present(best);
  const auto thresholds = peer_thresholds(speeds, rules.peers);
  const auto exchanges = count_exchanges(measured);
  std::vector<Finding> findings;
  for (int node = 0; node < nodes; ++node) {
    const auto& speed = best[at(node)];
    if (!speed && measured.accused[at(node)]) continue;
    Finding finding{.check = measured.kind + (direction == Direction::send ? ".send" : ".receive"),
                    .severity = Severity::ok,
                    .node = measured.nodes[at(node)],
                    .unit = "GB/s"};
    if (!speed) {
      finding.severity = Severity::unknown;
      finding.rule = "every node is measured";
      finding.evidence = "no exchange with it worked";
      finding.action = "see the other findings about this node";
    } else if (const Retrial* retrial = retrial_of(measured, node); retrial && thresholds) {
      tell_retrial(*retrial, direction, rules.peers, finding);
    } else if (finding.value = *speed / kGB; thresholds) {
      finding.severity = judge_by_peers(*speed, *thresholds);
      finding.expected = fmt::format("at least {:.3g} GB/s", thresholds->warning / kGB);
      finding.rule =
          "median - max(3.5 * 1.4826 * MAD, part of the median) of the nodes' best speeds";
      finding.evidence = fmt::format("best of {} exchanges; the median of {} nodes is {:.3g} GB/s",
                                     exchanges[at(node)], speeds.size(), thresholds->median / kGB);
      if (finding.severity != Severity::ok)
        finding.action = "exclude the node and check its network";
    } else {
      finding.rule = fmt::format("not compared: {} nodes are too few to outvote one, {} are needed",
                                 speeds.size(), kFewestPeers);
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

// Whether an end of the link is slow with everybody: then the link says nothing of its own.
bool ends_at_slow_node(const PairsMeasured& measured, const Pair& link, const PeerRule& rule) {
  return std::any_of(measured.retrials.begin(), measured.retrials.end(), [&](const Retrial& r) {
    return r.node && (*r.node == link.a || *r.node == link.b) &&
           opinion(r, rule) == Opinion::convicted;
  });
}

std::vector<Finding> judge_slow_links(const PairsMeasured& measured, const PairRules& rules) {
  std::vector<Finding> findings;
  for (const Retrial& retrial : measured.retrials) {
    const bool bad = !retrial.node && opinion(retrial, rules.peers) == Opinion::convicted;
    if (!bad || keeps_losing(retrial) || ends_at_slow_node(measured, retrial.link, rules.peers)) {
      continue;
    }
    const PeerThresholds thresholds = thresholds_of(retrial.references, rules.peers);
    findings.push_back(
        {.check = measured.kind + ".link",
         .severity = Severity::warning,
         .node = measured.nodes[at(retrial.link.a)],
         .peer = measured.nodes[at(retrial.link.b)],
         .value = std::min(*std::max_element(retrial.send.begin(), retrial.send.end()),
                           *std::max_element(retrial.receive.begin(), retrial.receive.end())) /
                  kGB,
         .unit = "GB/s",
         .expected = fmt::format("at least {:.3g} GB/s", thresholds.warning / kGB),
         .rule = "a pair is as fast as other pairs measured in turn with it",
         .evidence = fmt::format("best of {} measurements alone; both nodes are fast with others",
                                 retrial.send.size()),
         .action = "check the path between the two: switches, routes, cables"});
  }
  return findings;
}

// Packets that get lost: again and again between the same two nodes.
std::vector<Finding> judge_loss(const PairsMeasured& measured, const PeerRule& rule) {
  const auto lossy = [&](const PairResult& result) {
    if (ends_at_slow_node(measured, result.pair, rule)) return false;
    return std::any_of(measured.retrials.begin(), measured.retrials.end(), [&](const Retrial& r) {
      return !r.node && r.link == result.pair && result.lost >= kLossy &&
             opinion(r, rule) == Opinion::convicted && keeps_losing(r);
    });
  };
  double worst = 0;
  for (const auto& result : measured.results) {
    if (lossy(result)) worst = std::max(worst, result.lost);
  }
  const Charge charge{"loss", fmt::format("{:.2g} % of the data lost", 100 * worst),
                      fmt::format("less than {:g} %", 100 * kLossy),
                      "what TCP has to send again was lost on the way, again and again",
                      "check cables, transceivers and the error counters of the ports on the path"};
  return charge_pairs(measured, charge, lossy, [&](const PairResult& result) {
    return result.measured() && !lossy(result);
  });
}

}  // namespace

std::vector<Finding> judge_pairs(const PairsMeasured& measured, const PairRules& rules) {
  std::vector<Finding> findings = judge_failures(measured, rules.peers);
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  append(judge_data(measured));
  append(judge_link_rates(measured, rules.link));
  append(judge_direction(measured, Direction::send, rules));
  append(judge_direction(measured, Direction::receive, rules));
  append(judge_slow_links(measured, rules));
  append(judge_loss(measured, rules.peers));
  for (auto& finding : findings) finding.device = measured.rail;
  return findings;
}

PairSummary summarize(std::span<const PairResult> results) {
  std::vector<double> speeds;
  std::vector<double> latencies;
  for (const auto& result : results) {
    if (!result.measured()) continue;
    speeds.push_back(result.a_to_b);
    speeds.push_back(result.b_to_a);
    if (result.latency_seconds > 0) latencies.push_back(result.latency_seconds);
  }
  PairSummary summary;
  summary.exchanges = speeds.size() / 2;
  if (speeds.empty()) return summary;
  summary.median_per_second = median(speeds);
  summary.lowest_per_second = *std::min_element(speeds.begin(), speeds.end());
  if (!latencies.empty()) summary.latency_seconds = median(latencies);
  return summary;
}

}  // namespace ddp::check
