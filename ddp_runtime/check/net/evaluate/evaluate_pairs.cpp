// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/net/evaluate/evaluate_exchanges.h"
#include "ddp_runtime/check/net/locate/screen.h"

namespace ddp::check {
namespace {

// A slow link is CRITICAL only below this fraction of the normal speed, because few of a job's
// rings use the same link, while all of them use the same node.
constexpr double kGraveLink = 0.5;

// Number of successful exchanges of each node.
std::vector<int> count_exchanges(const PairsMeasured& measured) {
  std::vector<int> counts(measured.nodes.size(), 0);
  for (const auto& result : measured.results) {
    if (!result.measured()) continue;
    ++counts[slot(result.pair.a)];
    ++counts[slot(result.pair.b)];
  }
  return counts;
}

bool was_tried(const PairsMeasured& measured, int node) {
  return std::any_of(
      measured.results.begin(), measured.results.end(),
      [node](const PairResult& one) { return one.pair.a == node || one.pair.b == node; });
}

// The retest of each node; nullptr if the node was not a suspect or could not be measured again.
std::vector<const Retest*> measured_retests(const PairsMeasured& measured) {
  std::vector<const Retest*> retests(measured.nodes.size(), nullptr);
  for (const Retest& retest : measured.retests) {
    if (!retest.node || !estimate(retest, Direction::send)) continue;
    const Retest*& first = retests[slot(*retest.node)];
    if (first == nullptr) first = &retest;
  }
  return retests;
}

std::string percent(double part) {
  return fmt::format("{:.3g} %", 100 * part);
}

// "reaches 71 % of the speed of good pairs at the same time, 68 to 74 % within two standard errors;
// median of 9 measurements"
std::string evidence_of(const Retest& retest, const Estimate& found) {
  return fmt::format(
      "reaches {} of the speed of good pairs at the same time, {:.3g} to {} within two standard "
      "errors; median of {} measurements",
      percent(found.ratio), 100 * found.lowest(), percent(found.highest()), retest.tries.size());
}

void tell_retest(const Retest& retest, Direction direction, const PeerRule& rule,
                 Finding& finding) {
  const Estimate found = *estimate(retest, direction);
  std::vector<double> beside;
  for (const Try& one : retest.tries) beside.push_back(one.beside);
  const double usual = median(beside);
  finding.severity = severity_of(retest, direction, rule);
  finding.value = found.ratio * usual / kGB;
  finding.expected = fmt::format("at least {:.3g} GB/s", (1 - rule.warning) * usual / kGB);
  finding.rule = "retested together with good pairs: median of the ratios, and its standard error";
  finding.evidence = evidence_of(retest, found);
  if (finding.severity != Severity::ok) {
    finding.action = "exclude the node and check its network";
  } else if (outcome(retest, direction, rule) == Outcome::undecided) {
    finding.severity = Severity::unknown;
    finding.action = "rerun when the network and the node are less busy";
  }
}

using Thresholds = std::map<int, PeerThresholds>;  // by class

Thresholds thresholds_by_class(const PairsMeasured& measured,
                               const std::vector<std::optional<double>>& best, const PeerRule& rule,
                               std::map<int, std::size_t>& counts) {
  std::map<int, std::vector<double>> speeds;
  for (int node = 0; node < static_cast<int>(best.size()); ++node) {
    if (best[slot(node)]) speeds[class_of(measured.classes, node)].push_back(*best[slot(node)]);
  }
  Thresholds thresholds;
  for (const auto& [number, values] : speeds) {
    counts[number] = values.size();
    if (const auto found = peer_thresholds(values, rule)) thresholds[number] = *found;
  }
  return thresholds;
}

// A node without a speed of its class. An exchange with a slower link says that the node works.
void tell_no_speed(const PairsMeasured& measured, int node, std::optional<double> any_speed,
                   Finding& finding) {
  if (any_speed) {
    finding.value = *any_speed / kGB;
    finding.rule = "not compared: the links of all its partners are slower";
    return;
  }
  finding.severity = Severity::unknown;
  finding.rule = "every node is measured";
  finding.evidence = was_tried(measured, node)
                         ? "all exchanges with this node failed"
                         : "no exchange with this node took place: its partners were lost, or rank "
                           "0 was suspended";
  finding.action = "see the other findings";
}

// Whether there is one finding about the whole network, which explains every node without a
// measurement.
bool blames_everything(const std::vector<Finding>& failures) {
  return std::any_of(failures.begin(), failures.end(),
                     [](const Finding& finding) { return finding.node.empty(); });
}

std::vector<Finding> evaluate_direction(const PairsMeasured& measured, Direction direction,
                                        const PairRules& rules, bool nothing_works) {
  const auto nodes = static_cast<int>(measured.nodes.size());
  const auto best = best_speeds(nodes, measured.results, direction, measured.classes);
  const auto any = best_speeds(nodes, measured.results, direction);
  std::map<int, std::size_t> counts;
  const auto thresholds = thresholds_by_class(measured, best, rules.peers, counts);
  const auto exchanges = count_exchanges(measured);
  const auto retests = measured_retests(measured);
  std::vector<Finding> findings;
  for (int node = 0; node < nodes; ++node) {
    const auto& speed = best[slot(node)];
    if (!speed && (nothing_works || measured.already_flagged[slot(node)])) continue;
    Finding finding{.check = measured.kind + (direction == Direction::send ? ".send" : ".receive"),
                    .severity = Severity::ok,
                    .node = measured.nodes[slot(node)],
                    .unit = "GB/s"};
    const auto own = thresholds.find(class_of(measured.classes, node));
    if (!speed) {
      tell_no_speed(measured, node, any[slot(node)], finding);
    } else if (retests[slot(node)] != nullptr && own != thresholds.end()) {
      tell_retest(*retests[slot(node)], direction, rules.peers, finding);
    } else if (finding.value = *speed / kGB; own != thresholds.end()) {
      finding.severity = evaluate_by_peers(*speed, own->second);
      finding.expected = fmt::format("at least {:.3g} GB/s", own->second.warning / kGB);
      finding.rule =
          "median - max(3.5 * 1.4826 * MAD, fraction of the median) of the nodes' best speeds";
      finding.evidence =
          fmt::format("best of {} exchanges; the median of {} nodes is {:.3g} GB/s",
                      exchanges[slot(node)], counts[own->first], own->second.median / kGB);
      if (finding.severity != Severity::ok)
        finding.action = "exclude the node and check its network";
    } else {
      finding.rule = fmt::format("not compared: {} nodes are too few for a majority, {} are needed",
                                 counts[class_of(measured.classes, node)], kMinPeers);
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

// The retest of a node; nullptr if the node was not a suspect.
const Retest* retest_of(const PairsMeasured& measured, int node) {
  const auto found = std::find_if(measured.retests.begin(), measured.retests.end(),
                                  [node](const Retest& retest) { return retest.node == node; });
  return found == measured.retests.end() ? nullptr : &*found;
}

// Whether the link loses packets, which explains its speed.
bool loses(const Retest& link, const PeerRule& rule) {
  return keeps_losing(link) || loses_at_times(link, rule);
}

// The end of an unsteady link that was also far below the normal speed with other partners; nullptr
// unless exactly one end was, or if the link loses packets.
const Retest* unsteady_end(const PairsMeasured& measured, const Retest& link,
                           const PeerRule& rule) {
  if (loses(link, rule)) return nullptr;
  const auto failing = [&](int node) -> const Retest* {
    const Retest* retest = retest_of(measured, node);
    return retest != nullptr && tries_far_below(*retest, rule) > 0 ? retest : nullptr;
  };
  const Retest* a = failing(link.link.a);
  const Retest* b = failing(link.link.b);
  if (a != nullptr && b != nullptr) return nullptr;
  return a != nullptr ? a : b;
}

// Slower links are a property of the cluster and not a fault, so they are reported and compared
// among themselves.
std::vector<Finding> evaluate_classes(const PairsMeasured& measured) {
  std::map<int, std::vector<std::string>> members;
  for (std::size_t i = 0; i < measured.classes.size(); ++i) {
    members[measured.classes[i]].push_back(measured.nodes[i]);
  }
  if (members.size() < 2) return {};
  members.erase(std::prev(members.end()));
  std::vector<Finding> findings;
  findings.reserve(members.size());
  for (const auto& [number, nodes] : members) {
    findings.push_back({.check = measured.kind + ".slower_links",
                        .severity = Severity::ok,
                        .device = fmt::format("class {}", number + 1),
                        .value = static_cast<double>(nodes.size()),
                        .unit = "nodes",
                        .rule = "nodes are compared with those whose links have the same rate",
                        .evidence = fmt::format("{}", fmt::join(nodes, " "))});
  }
  return findings;
}

// Nodes whose speed was normal in most tries and far below normal in others.
std::vector<Finding> evaluate_unsteady(const PairsMeasured& measured, const PeerRule& rule) {
  std::set<int> nodes;
  for (const Retest& retest : measured.retests) {
    if (outcome(retest, rule) != Outcome::unsteady) continue;
    if (retest.node) {
      nodes.insert(*retest.node);
    } else if (const Retest* end = unsteady_end(measured, retest, rule)) {
      if (outcome(*end, rule) != Outcome::slow) nodes.insert(*end->node);
    }
  }
  std::vector<Finding> findings;
  for (const int node : nodes) {
    const Retest& retest = *retest_of(measured, node);
    double lowest = 1;
    for (const Try& one : retest.tries) {
      lowest = std::min(lowest, std::min(one.send, one.receive) / one.beside);
    }
    findings.push_back({.check = measured.kind + ".unsteady",
                        .severity = Severity::warning,
                        .node = measured.nodes[slot(node)],
                        .value = 100 * lowest,
                        .unit = "% of the normal speed",
                        .expected = "more than half of the normal speed in every try",
                        .rule = "retested together with good pairs, the speed is steady",
                        .evidence = fmt::format("the lowest of {} measurements; most are normal",
                                                retest.tries.size()),
                        .action = "look for a flapping port and for thermal or power throttling"});
  }
  return findings;
}

std::vector<Finding> evaluate_latencies(const PairsMeasured& measured) {
  std::vector<Finding> findings;
  for (const Retest& retest : measured.retests) {
    const auto times = late_by(retest);
    if (!retest.node || !times) continue;
    std::vector<double> seconds;
    for (const Try& one : retest.tries) seconds.push_back(one.latency_seconds);
    findings.push_back(
        {.check = measured.kind + ".latency",
         .severity = Severity::warning,
         .node = measured.nodes[slot(*retest.node)],
         .value = 1e6 * median(seconds),
         .unit = "us",
         .expected = fmt::format("about {:.3g} us", 1e6 * median(seconds) / *times),
         .rule = "a node answers within three times the latency of good pairs at the same time",
         .evidence = fmt::format("{:.2g} times as long as good pairs, in {} measurements", *times,
                                 seconds.size()),
         .action = "check the node's interrupt moderation, power saving and network path"});
  }
  return findings;
}

// Reports the smallest slowdown that the check would have found, which limits the value of an OK.
std::vector<Finding> evaluate_noise(const PairsMeasured& measured, const PairRules& rules) {
  const PeerRule& rule = rules.peers;
  const auto limit = detection_limit_of(measured, rule);
  if (!limit) return {};
  const double noise =
      exchange_noise(static_cast<int>(measured.nodes.size()), measured.results, measured.classes);
  Finding finding{.check = measured.kind + ".noise",
                  .severity = Severity::ok,
                  .value = 100 * *limit,
                  .unit = "% slower would have been detected",
                  .expected = fmt::format("at most {:.0f}", 100 * rule.coarsest()),
                  .rule = "a node that is slower by this much is found in 19 of 20 cases",
                  .evidence = fmt::format("single measurements vary by {}", percent(noise))};
  if (*limit > rule.coarsest()) {
    finding.severity = rules.noise;
    finding.action =
        "rerun when the network and the nodes are less busy, with more --rounds, or with a larger "
        "--slow-critical";
  }
  return {finding};
}

std::vector<Finding> evaluate_slow_links(const PairsMeasured& measured, const PairRules& rules) {
  std::vector<Finding> findings;
  for (const Retest& retest : measured.retests) {
    if (retest.node || loses(retest, rules.peers)) continue;
    const Outcome found = outcome(retest, rules.peers);
    if (found != Outcome::slow && found != Outcome::unsteady) continue;
    if (ends_at_bad_node(measured, retest.link, rules.peers)) continue;
    if (found == Outcome::unsteady && unsteady_end(measured, retest, rules.peers)) continue;
    const auto send = *estimate(retest, Direction::send);
    const auto receive = *estimate(retest, Direction::receive);
    const auto& slower = send.ratio < receive.ratio ? send : receive;
    const bool grave =
        found == Outcome::slow && slower.ratio < std::min(kGraveLink, 1 - rules.peers.critical);
    std::vector<double> beside;
    for (const Try& one : retest.tries) beside.push_back(one.beside);
    const double usual = median(beside);
    findings.push_back(
        {.check = measured.kind + ".link",
         .severity = grave ? Severity::critical : Severity::warning,
         .node = measured.nodes[slot(retest.link.a)],
         .peer = measured.nodes[slot(retest.link.b)],
         .value = slower.ratio * usual / kGB,
         .unit = "GB/s",
         .expected = fmt::format("at least {:.3g} GB/s", (1 - rules.peers.warning) * usual / kGB),
         .rule = "a pair is as fast as other pairs measured at the same time",
         .evidence =
             found == Outcome::slow
                 ? evidence_of(retest, slower) + "; both nodes are fast with other partners"
                 : "far below in some measurements; both nodes are steady with other partners",
         .action = "check the path between the two nodes: switches, routes, cables"});
  }
  return findings;
}

}  // namespace

std::vector<Finding> evaluate_pairs(const PairsMeasured& measured, const PairRules& rules) {
  std::vector<Finding> findings = evaluate_failures(measured, rules.peers);
  const bool nothing_works = blames_everything(findings);
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  append(evaluate_data(measured));
  append(evaluate_link_rates(measured, rules.link));
  append(evaluate_direction(measured, Direction::send, rules, nothing_works));
  append(evaluate_direction(measured, Direction::receive, rules, nothing_works));
  append(evaluate_unsteady(measured, rules.peers));
  append(evaluate_latencies(measured));
  append(evaluate_slow_links(measured, rules));
  append(evaluate_loss(measured, rules.peers));
  append(evaluate_noise(measured, rules));
  for (auto& finding : findings) {
    const auto own = measured.own_rails.find(finding.peer.empty() ? finding.node : "");
    finding.device = own == measured.own_rails.end() ? measured.rail : own->second;
  }
  append(evaluate_classes(measured));
  return findings;
}

std::optional<double> detection_limit_of(const PairsMeasured& measured, const PeerRule& rule) {
  auto limit = detection_limit(static_cast<int>(measured.nodes.size()), measured.results, rule,
                               measured.classes);
  for (const Retest& retest : measured.retests) {
    const double hidden = retest.node ? hidden_by_noise(retest, rule) : 0;
    if (hidden > 0) limit = std::max(limit.value_or(0), hidden);
  }
  return limit;
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
