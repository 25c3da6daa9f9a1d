// SPDX-License-Identifier: Apache-2.0
// Tests verdicts on synthetic measurements: every kind of fault has the right name, and a healthy
// run has no findings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_collective.h"
#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"
#include "ddp_runtime/check/net/evaluate/evaluate_names.h"
#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

// "check node/peer/device=SEVERITY" for every finding that is not OK.
std::string complaints(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    if (finding.severity == Severity::ok) continue;
    text += (text.empty() ? "" : ", ") + finding.check + " " + finding.node;
    if (!finding.peer.empty()) text += "/" + finding.peer;
    if (!finding.device.empty()) text += "/" + finding.device;
    text += "=";
    text += name_of(finding.severity);
  }
  return text;
}

// ---- tasks that reported

JobStep two_nodes() {
  JobStep step;
  step.size = 3;
  step.nodes = {{"n1", 2}, {"n2", 1}};
  step.leader_host = "n1";
  return step;
}

std::map<int, Hello> reports(const std::vector<std::string>& nodes) {
  std::map<int, Hello> present;
  int rank = 0;
  for (const auto& node : nodes) {
    if (!node.empty()) {
      Hello hello;
      hello.rank = rank;
      hello.node = node;
      hello.leader_addresses = {"10.0.0.1"};
      hello.address = "10.0.0.2";
      hello.mtu = 9000;
      present[rank] = hello;
    }
    ++rank;
  }
  return present;
}

constexpr std::chrono::milliseconds kTimeout{30'000};

TEST(EvaluateRollCall, CompleteRollCallIsOk) {
  EXPECT_EQ(complaints(evaluate_roll_call(two_nodes(), reports({"n1", "n1", "n2"}), kTimeout, {})),
            "");
}

TEST(EvaluateRollCall, MissingNodesAndTasksAreNamed) {
  EXPECT_EQ(complaints(evaluate_roll_call(two_nodes(), reports({"n1", "n1", ""}), kTimeout, {})),
            "net.missing n2=CRITICAL");
  const auto findings = evaluate_roll_call(two_nodes(), reports({"n1", "", "n2"}), kTimeout, {});
  EXPECT_EQ(complaints(findings), "net.missing n1=CRITICAL");
  EXPECT_EQ(findings.front().evidence, "1 of 2 tasks reported");
}

TEST(EvaluateRollCall, RanksAreNamedIfTheNodesAreUnknown) {
  JobStep step = two_nodes();
  step.nodes.clear();
  EXPECT_EQ(complaints(evaluate_roll_call(step, reports({"n1", "", ""}), kTimeout, {})),
            "net.missing /rank 1,2=CRITICAL");
}

TEST(EvaluateRollCall, RejectedTasksAreReported) {
  EXPECT_EQ(complaints(evaluate_roll_call(two_nodes(), reports({"n1", "n1", "n2"}), kTimeout,
                                          {"n9 belongs to another job step"})),
            "net.refused =WARNING");
}

// A job of one node has no network to check, but a check of one node in a larger job was started
// incorrectly.
TEST(EvaluateRollCall, OneNodeIsFineOnlyIfItIsTheWholeJob) {
  JobStep step;
  step.nodes = {{"n1", 4}};
  for (const auto& [job_nodes, severity] :
       {std::pair{0, Severity::unknown}, std::pair{1, Severity::ok},
        std::pair{8, Severity::unknown}}) {
    step.job_nodes = job_nodes;
    EXPECT_EQ(evaluate_no_pair(step).severity, severity) << job_nodes;
  }
  JobStep with_a_missing_node = two_nodes();
  with_a_missing_node.job_nodes = 1;
  EXPECT_EQ(evaluate_no_pair(with_a_missing_node).severity, Severity::unknown);
}

JobStep five_nodes() {
  JobStep step;
  step.size = 5;
  step.nodes = {{"n1", 1}, {"n2", 1}, {"n3", 1}, {"n4", 1}, {"n5", 1}};
  step.leader_host = "n1";
  return step;
}

// Rank 0 with a dead link hears no other node. It must not exclude and drain all good nodes.
TEST(EvaluateRollCall, NamesNoNodeIfMostAreMissing) {
  const auto alone =
      evaluate_roll_call(five_nodes(), reports({"n1", "", "", "", ""}), kTimeout, {});
  EXPECT_EQ(complaints(alone), "net.missing =CRITICAL");
  EXPECT_THAT(alone.front().evidence, HasSubstr("4 of 5 nodes: n2, n3, n4, n5; "));
  EXPECT_EQ(
      complaints(evaluate_roll_call(five_nodes(), reports({"n1", "", "", "", "n5"}), kTimeout, {})),
      "net.missing =CRITICAL");
  EXPECT_EQ(complaints(evaluate_roll_call(five_nodes(), reports({"n1", "", "", "n4", "n5"}),
                                          kTimeout, {})),
            "net.missing n2=CRITICAL, net.missing n3=CRITICAL");
}

TEST(EvaluateRollCall, FewOfManyMissingNodesAreListed) {
  JobStep step;
  step.size = 1000;
  for (int i = 1; i <= 1000; ++i) step.nodes.push_back({"n" + std::to_string(i), 1});
  const auto findings = evaluate_roll_call(step, reports({"n1"}), kTimeout, {});
  EXPECT_EQ(complaints(findings), "net.missing =CRITICAL");
  EXPECT_THAT(findings.front().evidence, HasSubstr("999 of 1000 nodes: n2, n3, n4, n5, n6, n7, n8, "
                                                   "n9 and 991 more;"));
}

TEST(EvaluateLost, NamesNoNodeIfMostAreSilent) {
  const std::vector<LostTask> lost{{1, "n2", "TCP round 1 of 3", "it stopped answering"},
                                   {2, "n3", "TCP round 1 of 3", "it stopped answering"}};
  const auto all = node_table(five_nodes(), reports({"n1", "n2", "n3", "n4", "n5"}));
  EXPECT_EQ(complaints(evaluate_lost(five_nodes(), all, lost)),
            "net.answer n2=CRITICAL, net.answer n3=CRITICAL");
  const auto one_missing = node_table(five_nodes(), reports({"n1", "n2", "n3", "n4", ""}));
  const auto findings = evaluate_lost(five_nodes(), one_missing, lost);
  EXPECT_EQ(complaints(findings), "net.answer =CRITICAL");
  EXPECT_THAT(findings.front().evidence, HasSubstr("3 of 5 nodes: n2, n3, n5; "));
  EXPECT_TRUE(evaluate_lost(five_nodes(), node_table(five_nodes(), reports({"n1"})), {}).empty());
}

TEST(EvaluateLost, NamesTheNodeAndTheMoment) {
  const std::vector<LostTask> lost{{2, "n2", "TCP round 1 of 3", "it stopped answering"}};
  const auto findings =
      evaluate_lost(two_nodes(), node_table(two_nodes(), reports({"n1", "n1", "n2"})), lost);
  EXPECT_EQ(complaints(findings), "net.answer n2=CRITICAL");
  EXPECT_EQ(findings[0].evidence, "rank 2, during TCP round 1 of 3: it stopped answering");
}

TEST(EvaluateReports, AgreementHasNoFindings) {
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), reports({"n1", "n1", "n2"}))), "");
  EXPECT_TRUE(evaluate_reports(two_nodes(), {}).empty());
}

TEST(EvaluateReports, NodeThatResolvesTheLeaderDifferentlyIsNamed) {
  auto present = reports({"n1", "n1", "n2"});
  present[2].leader_addresses = {"10.9.9.9"};
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)), "name.leader n2/n1=WARNING");
}

TEST(EvaluateReports, LeaderThatCannotReachItselfIsCritical) {
  auto present = reports({"n1", "n1", "n2"});
  present[0].by_loopback = true;
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)),
            "net.leader_address n1/n1=CRITICAL");
}

TEST(EvaluateReports, DifferentMtusAreReported) {
  auto present = reports({"n1", "n1", "n2"});
  present[2].mtu = 1500;
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)), "net.mtu n2=WARNING");
  present[2].address = "127.0.0.1";  // loopback has another MTU
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)), "");
}

TEST(EvaluateReports, TwoMtusWithoutAMajorityNameBothNodes) {
  auto present = reports({"n1", "n2"});
  present[1].mtu = 1500;
  const auto findings = evaluate_reports(two_nodes(), present);
  EXPECT_THAT(complaints(findings), HasSubstr("net.mtu n"));
  EXPECT_THAT(complaints(findings), HasSubstr("/n"));
}

// ---- names

TEST(EvaluateNames, AgreementHasNoFindings) {
  const std::map<std::string, std::vector<std::string>> same{{"n1", {"10.0.0.1"}},
                                                             {"n2", {"10.0.0.2"}}};
  EXPECT_EQ(complaints(evaluate_names({{"n1", same}, {"n2", same}, {"n3", same}})), "");
  EXPECT_EQ(complaints(evaluate_names({})), "");
}

TEST(EvaluateNames, TheMajorityIsRight) {
  const Resolutions resolutions{{"n1", {{"n3", {"10.0.0.3"}}}},
                                {"n2", {{"n3", {"10.0.0.3"}}}},
                                {"n4", {{"n3", {"10.9.9.9"}}}},
                                {"n5", {{"n3", {}}}}};
  EXPECT_EQ(complaints(evaluate_names(resolutions)),
            "name.resolution n4/n3=WARNING, name.resolution n5/n3=WARNING");
}

TEST(EvaluateNames, TwoNodesThatDisagreeHaveNoMajority) {
  const Resolutions resolutions{{"n1", {{"n3", {"10.0.0.3"}}}}, {"n2", {{"n3", {"10.9.9.9"}}}}};
  EXPECT_EQ(complaints(evaluate_names(resolutions)), "");
}

TEST(EvaluateNames, NodeMayResolveItselfDifferentlyButNotToLoopbackOnly) {
  const Resolutions resolutions{{"n1", {{"n1", {"127.0.1.1"}}}},
                                {"n2", {{"n1", {"10.0.0.1"}}, {"n2", {"192.168.0.2"}}}},
                                {"n3", {{"n1", {"10.0.0.1"}}, {"n2", {"10.0.0.2"}}}},
                                {"n4", {{"n1", {"10.0.0.1"}}, {"n2", {"10.0.0.2"}}}}};
  EXPECT_EQ(complaints(evaluate_names(resolutions)), "name.own n1=WARNING");
}

TEST(EvaluateNames, NodeThatCannotResolveItsOwnNameIsReported) {
  Resolutions resolutions;
  resolutions["n1"]["n1"] = {};
  resolutions["n2"]["n1"] = {"10.0.0.1"};
  resolutions["n3"]["n1"] = {"10.0.0.1"};
  EXPECT_EQ(complaints(evaluate_names(resolutions)), "name.resolution n1/n1=WARNING");
  // In this cluster, no name service knows the node names.
  const std::map<std::string, std::vector<std::string>> unknown{{"n1", {}}, {"n2", {}}};
  EXPECT_EQ(complaints(evaluate_names({{"n1", unknown}, {"n2", unknown}})), "");
}

// ---- pairs

PairsMeasured fleet(int nodes, double speed = 1e9) {
  PairsMeasured measured;
  measured.kind = "tcp";
  for (int i = 1; i <= nodes; ++i) {
    std::string name = "n";
    name += std::to_string(i);
    measured.nodes.push_back(name);
  }
  measured.already_flagged.assign(measured.nodes.size(), false);
  measured.link_rate.assign(measured.nodes.size(), std::nullopt);
  for (const auto& round : all_rounds(nodes)) {
    for (const auto& pair : round) {
      PairResult result;
      result.pair = pair;
      result.a_to_b = result.b_to_a = speed;
      result.latency_seconds = 1e-5;
      measured.results.push_back(result);
    }
  }
  return measured;
}

template <class Change>
void change_pairs_of(PairsMeasured& measured, int node, const Change& change) {
  for (auto& result : measured.results) {
    if (result.pair.a == node || result.pair.b == node) change(result);
  }
}

TEST(EvaluatePairs, HealthyClusterHasNoFindings) {
  EXPECT_EQ(complaints(evaluate_pairs(fleet(8), {})), "");
}

TEST(EvaluatePairs, SlowNodeIsNamed) {
  auto measured = fleet(6);
  change_pairs_of(measured, 2, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.5e9; });
  const auto findings = evaluate_pairs(measured, {});
  EXPECT_EQ(complaints(findings), "tcp.send n3=CRITICAL, tcp.receive n3=CRITICAL");
  change_pairs_of(measured, 2, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.85e9; });
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.send n3=WARNING, tcp.receive n3=WARNING");
}

TEST(EvaluatePairs, DirectionIsReported) {
  auto measured = fleet(6);
  change_pairs_of(measured, 2, [](PairResult& r) {
    (r.pair.a == 2 ? r.b_to_a : r.a_to_b) = 0.5e9;  // the direction to node 2
  });
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.receive n3=CRITICAL");
}

TEST(EvaluatePairs, CorruptDataNamesTheNodeOrTheLink) {
  auto measured = fleet(4);
  change_pairs_of(measured, 1,
                  [](PairResult& r) { (r.pair.a == 1 ? r.wrong_at_a : r.wrong_at_b) = 3; });
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.data n2=CRITICAL");
  auto one_link = fleet(4);
  one_link.results[0].wrong_at_b = 1;
  EXPECT_EQ(complaints(evaluate_pairs(one_link, {})), "tcp.data n1/n4=CRITICAL");
}

TEST(EvaluatePairs, FailedExchangesNameTheNodeOrTheNetwork) {
  auto measured = fleet(4);
  change_pairs_of(measured, 1, [](PairResult& r) { r.failure = "refused"; });
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.exchange n2=CRITICAL, tcp.send n2=UNKNOWN, tcp.receive n2=UNKNOWN");
  auto everything = fleet(4);
  for (auto& result : everything.results) result.failure = "refused";
  const auto findings = evaluate_pairs(everything, {});
  EXPECT_THAT(complaints(findings), HasSubstr("tcp.exchange =CRITICAL"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("all 6 pairs"));
}

TEST(EvaluatePairs, TimeoutOfASlowNodeBlamesThatNode) {
  auto measured = fleet(6);
  change_pairs_of(measured, 2, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.01e9; });
  for (auto& result : measured.results) {
    if (result.pair == Pair{2, 5}) result.failure = "no more data";
  }
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.exchange n3=CRITICAL, tcp.send n3=CRITICAL, tcp.receive n3=CRITICAL");
}

// A missing measurement is UNKNOWN, unless the node is already reported for another reason.
TEST(EvaluatePairs, NodeWithoutAMeasurementIsUnknown) {
  auto measured = fleet(5);
  std::erase_if(measured.results, [](const PairResult& r) { return r.pair.b == 4; });
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.send n5=UNKNOWN, tcp.receive n5=UNKNOWN");
  measured.already_flagged[4] = true;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");
}

TEST(EvaluatePairs, TooFewPeersAreReported) {
  auto measured = fleet(3);
  change_pairs_of(measured, 2, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.1e9; });
  const auto findings = evaluate_pairs(measured, {});
  EXPECT_EQ(complaints(findings), "");
  EXPECT_EQ(findings[0].rule, "not compared: 3 nodes are too few for a majority, 4 are needed");
}

// A cluster that is slow as a whole passes every comparison between its nodes.
TEST(EvaluatePairs, LinkRateAppliesToTwoNodes) {
  auto measured = fleet(2, 0.05e9);
  measured.link_rate.assign(2, 0.125e9);  // 1 Gb/s
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.link_rate n1/n2=CRITICAL");
  measured = fleet(2, 0.09e9);
  measured.link_rate.assign(2, 0.125e9);
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.link_rate n1/n2=WARNING");
  measured = fleet(2, 0.117e9);
  measured.link_rate.assign(2, 0.125e9);
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");
  measured.link_rate[1].reset();  // unknown at one end: no comparison
  EXPECT_EQ(complaints(evaluate_pairs(fleet(2, 0.001e9), {})), "");
}

TEST(EvaluatePairs, LinkRateNamesTheNodeAmongThree) {
  auto measured = fleet(3, 0.117e9);
  measured.link_rate.assign(3, 0.125e9);
  change_pairs_of(measured, 1, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.02e9; });
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.link_rate n2=CRITICAL");
  auto all = fleet(4, 0.02e9);
  all.link_rate.assign(4, 0.125e9);
  EXPECT_EQ(complaints(evaluate_pairs(all, {})), "tcp.link_rate =CRITICAL");
}

TEST(EvaluatePairs, OneStreamIsNotExpectedToFillAFastLink) {
  auto measured = fleet(2, 3e9);
  measured.link_rate.assign(2, 50e9);  // 400 Gb/s
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");
}

// `times` measurements at one speed, with good pairs at 1 GB/s at the same time.
Retest retest_of(std::optional<int> node, const Pair& link, double speed, int times = 9) {
  Retest retest;
  retest.node = node;
  retest.link = link;
  retest.tries.assign(static_cast<std::size_t>(times),
                      {.send = speed, .receive = speed, .beside = 1e9});
  retest.reference_ratios.assign(36, 1.0);
  retest.noise = 0.02;
  return retest;
}

TEST(EvaluatePairs, ConfirmedSlowLinkIsReported) {
  auto measured = fleet(6);
  const Pair link = measured.results[0].pair;
  measured.results[0].a_to_b = 0.3e9;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");  // not retested
  measured.retests = {retest_of(std::nullopt, link, 0.3e9)};
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.link n1/n6=CRITICAL");
  measured.retests = {retest_of(std::nullopt, link, 0.7e9)};
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.link n1/n6=WARNING");
  measured.retests = {retest_of(std::nullopt, link, 0.95e9)};
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");
}

TEST(EvaluatePairs, NodeThatPassesTheRetestIsCleared) {
  auto measured = fleet(6);
  change_pairs_of(measured, 2, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.5e9; });
  measured.retests = {retest_of(2, {}, 0.97e9)};
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");
  measured.retests = {retest_of(2, {}, 0.85e9)};
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.send n3=WARNING, tcp.receive n3=WARNING");
  for (Try& one : measured.retests[0].tries) one.receive = 1e9;  // only its sending is slow
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.send n3=WARNING");
}

// A ratio between slow and fast is undecided.
TEST(EvaluatePairs, UndecidedRetestIsUnknown) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 0.8e9)};
  measured.retests[0].noise = 0.2;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.send n3=UNKNOWN, tcp.receive n3=UNKNOWN");
}

// With more noise, the node is not clearly slower than good pairs. Then it has no finding of its
// own, and one finding reports the slowdown that the noise may hide in any node.
TEST(EvaluatePairs, NoiseBlamesNoNodeAndHasTheSeverityTheUserChose) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 0.8e9)};
  measured.retests[0].noise = 0.3;
  PairRules rules;
  EXPECT_EQ(complaints(evaluate_pairs(measured, rules)), "tcp.noise =UNKNOWN");
  EXPECT_GT(detection_limit_of(measured, rules.peers), 0.2);
  rules.noise = Severity::warning;
  EXPECT_EQ(complaints(evaluate_pairs(measured, rules)), "tcp.noise =WARNING");
  measured.retests[0].noise = 0.2;  // with less noise, the suspect stays a suspect
  EXPECT_EQ(complaints(evaluate_pairs(measured, rules)),
            "tcp.send n3=UNKNOWN, tcp.receive n3=UNKNOWN");
}

TEST(EvaluatePairs, NodeThatIsSometimesFarBelowIsUnsteady) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 1e9)};
  for (const std::size_t i : {1U, 4U, 7U}) measured.retests[0].tries[i].send = 0.3e9;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.unsteady n3=WARNING");
  // The fault appears on one link, and once with other partners of one end.
  measured.retests[0].node.reset();
  measured.retests[0].link = {2, 4};
  measured.retests.push_back(retest_of(2, {}, 1e9));
  measured.retests.push_back(retest_of(4, {}, 1e9));
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.link n3/n5=WARNING");
  measured.retests[2].tries[3].receive = 0.3e9;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.unsteady n5=WARNING");
}

TEST(EvaluatePairs, LateNodeIsAWarning) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 1e9)};
  for (Try& one : measured.retests[0].tries) {
    one.latency_seconds = 80e-6;
    one.beside_latency_seconds = 10e-6;
  }
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.latency n3=WARNING");
}

const Finding& noise_of(const std::vector<Finding>& findings) {
  return *std::find_if(findings.begin(), findings.end(),
                       [](const Finding& f) { return f.check == "tcp.noise"; });
}

// The value of an OK depends on the slowdown that the check would have detected.
TEST(EvaluatePairs, DetectionLimitIsReportedAndACoarseLimitIsUnknown) {
  auto measured = fleet(8);
  EXPECT_EQ(noise_of(evaluate_pairs(measured, {})).severity, Severity::ok);
  EXPECT_NEAR(std::get<double>(noise_of(evaluate_pairs(measured, {})).value), 10, 1e-6);
  int number = 1;
  const auto factor = [&number] {
    number = (number * 73 + 41) % 101;
    return 0.5 + number / 101.0;
  };
  for (auto& result : measured.results) {
    result.a_to_b *= factor();
    result.b_to_a *= factor();
  }
  EXPECT_EQ(noise_of(evaluate_pairs(measured, {})).severity, Severity::unknown);
  EXPECT_THAT(complaints(evaluate_pairs(measured, {})), HasSubstr("tcp.noise =UNKNOWN"));
  PairRules tolerant;
  tolerant.peers = {0.9, 0.9};
  EXPECT_EQ(noise_of(evaluate_pairs(measured, tolerant)).severity, Severity::ok);
}

TEST(EvaluatePairs, SlowerLinksAreReportedButAreNotAFault) {
  auto measured = fleet(10);
  measured.classes = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
  for (auto& result : measured.results) {
    if (result.pair.a < 4) result.a_to_b = result.b_to_a = 0.5e9;
  }
  const auto findings = evaluate_pairs(measured, {});
  EXPECT_EQ(complaints(findings), "");
  EXPECT_EQ(findings.back().check, "tcp.slower_links");
  EXPECT_EQ(findings.back().evidence, "n1 n2 n3 n4");
  measured.classes.clear();
  EXPECT_NE(complaints(evaluate_pairs(measured, {})), "");
}

TEST(EvaluatePairs, LinksOfASlowNodeAreNotReported) {
  auto measured = fleet(6);
  change_pairs_of(measured, 2, [](PairResult& r) { r.a_to_b = r.b_to_a = 0.1e9; });
  measured.retests = {retest_of(2, {}, 0.1e9), retest_of(std::nullopt, {2, 3}, 0.1e9)};
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})),
            "tcp.send n3=CRITICAL, tcp.receive n3=CRITICAL");
}

// Loss blames the link. It blames a node only if all links of the node lose packets.
TEST(EvaluatePairs, LossBlamesTheLinkOrTheNode) {
  auto measured = fleet(5);
  const auto lose = [&measured](PairResult& result) {
    result.lost = 0.02;
    measured.retests.push_back(retest_of(std::nullopt, result.pair, 1e9));
    measured.retests.back().lossy = true;
    for (Try& one : measured.retests.back().tries) one.lost = 0.02;
  };
  lose(measured.results[0]);
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.loss n2/n5=CRITICAL");
  measured.retests[0].tries[3].lost = 0;  // two tries without loss
  measured.retests[0].tries[5].lost = 0;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.loss n2/n5=CRITICAL");
  measured.retests[0].tries[1].lost = 0;
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "");
  measured = fleet(5);
  change_pairs_of(measured, 3, lose);
  EXPECT_EQ(complaints(evaluate_pairs(measured, {})), "tcp.loss n4=CRITICAL");
}

TEST(EvaluatePairs, SummaryCoversExchangesThatWorked) {
  auto measured = fleet(4);
  measured.results[0].a_to_b = 0.5e9;
  measured.results[1].failure = "refused";
  const PairSummary summary = summarize(measured.results);
  EXPECT_EQ(summary.exchanges, 5U);
  EXPECT_EQ(summary.median_per_second, 1e9);
  EXPECT_EQ(summary.lowest_per_second, 0.5e9);
  EXPECT_EQ(summary.latency_seconds, 1e-5);
  EXPECT_EQ(summarize({}).exchanges, 0U);
}

// ---- collectives

CollectiveMeasured reduced() {
  CollectiveMeasured measured;
  measured.ranks = 4;
  measured.elements = 250'000'000;  // 1 GB
  for (int rank = 0; rank < 4; ++rank) {
    measured.results[rank].seconds = {1.0, 1.0, 1.0};
    measured.nodes[rank] = std::string("n") + static_cast<char>('1' + rank);
  }
  return measured;
}

std::vector<Finding> evaluate_collective_whole(const CollectiveMeasured& measured,
                                               std::optional<double> fewest_per_second) {
  auto findings = evaluate_collective_data(measured);
  findings.push_back(evaluate_collective_speed(measured, fewest_per_second));
  return findings;
}

TEST(EvaluateCollective, BusBandwidthIsThatOfTheSlowestRank) {
  auto measured = reduced();
  measured.results[2].seconds = {2.0, 4.0, 2.0};
  const auto bandwidth = bus_bandwidth(measured);
  ASSERT_TRUE(bandwidth);
  EXPECT_DOUBLE_EQ(bandwidth->seconds, 2.0);
  EXPECT_DOUBLE_EQ(bandwidth->factor, 1.5);
  EXPECT_DOUBLE_EQ(bandwidth->algorithm_per_second, 0.5e9);
  EXPECT_DOUBLE_EQ(bandwidth->bus_per_second, 0.75e9);
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)), "");
}

TEST(EvaluateCollective, RequestedBandwidthIsRequired) {
  EXPECT_EQ(complaints(evaluate_collective_whole(reduced(), 1.4e9)), "");
  EXPECT_EQ(complaints(evaluate_collective_whole(reduced(), 1.6e9)), "mpi.all_reduce =CRITICAL");
}

TEST(EvaluateCollective, WrongSumsNameTheirNode) {
  auto measured = reduced();
  measured.results[1].mismatch.count = 7;
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)),
            "mpi.all_reduce_data n2=CRITICAL");
  for (auto& [rank, result] : measured.results) result.mismatch.count = 7;
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)),
            "mpi.all_reduce_data =CRITICAL");
}

TEST(EvaluateCollective, WithTwoRanksEitherMayBeAtFault) {
  auto measured = reduced();
  measured.ranks = 2;
  measured.results.erase(2);
  measured.results.erase(3);
  measured.nodes.erase(2);
  measured.nodes.erase(3);
  measured.results[1].mismatch.count = 7;
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)),
            "mpi.all_reduce_data n2/n1=CRITICAL");
}

TEST(EvaluateCollective, EachCollectiveHasItsFactorAndItsName) {
  auto measured = reduced();
  measured.results[1].mismatch.count = 1;
  measured.collective = Collective::all_gather;
  EXPECT_DOUBLE_EQ(bus_bandwidth(measured)->factor, 0.75);
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)),
            "mpi.all_gather_data n2=CRITICAL");
  measured.collective = Collective::reduce_scatter;
  EXPECT_DOUBLE_EQ(bus_bandwidth(measured)->bus_per_second, 0.75e9);
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, 0.8e9)),
            "mpi.reduce_scatter_data n2=CRITICAL, mpi.reduce_scatter =CRITICAL");
  for (const Collective collective : kCollectives)
    EXPECT_EQ(collective_named(name_of(collective)), collective);
  EXPECT_THROW(collective_named("broadcast"), RuntimeError);
}

std::vector<PairResult> pairs_at(double speed, double latency) {
  auto measured = fleet(4, speed);
  for (auto& result : measured.results) result.latency_seconds = latency;
  return measured.results;
}

// 1 GB over four ranks at 1 GB/s: a ring takes 1.5 s.
TEST(EvaluateCollective, PairsPredictTheTime) {
  PairBasis pairs = pair_basis_of(pairs_at(1e9, 1e-5));
  EXPECT_DOUBLE_EQ(pairs.slowest_per_second, 1e9);
  EXPECT_NEAR(*predicted_seconds(Collective::all_reduce, 4, 1e9, pairs), 1.5, 1e-3);
  EXPECT_NEAR(*predicted_seconds(Collective::all_gather, 4, 1e9, pairs), 0.75, 1e-3);
  EXPECT_NEAR(*predicted_seconds(Collective::all_reduce, 1024, 8, pairs), 20e-5, 1e-6);
  EXPECT_FALSE(predicted_seconds(Collective::all_reduce, 4, 1e9, {}));
  EXPECT_FALSE(predicted_seconds(Collective::all_reduce, 1, 1e9, pairs));
}

TEST(EvaluateCollective, SlowCollectiveWithFastPairsIsAWarning) {
  const PairBasis pairs = pair_basis_of(pairs_at(1e9, 1e-5));
  auto measured = reduced();
  EXPECT_EQ(evaluate_collective_speed(measured, std::nullopt, pairs).severity, Severity::ok);
  for (auto& [rank, result] : measured.results) result.seconds = {20, 30, 25};
  EXPECT_EQ(evaluate_collective_speed(measured, std::nullopt, pairs).severity, Severity::warning);
  measured.results[0].seconds[1] = 1;  // on one rank only
  EXPECT_EQ(evaluate_collective_speed(measured, std::nullopt, pairs).severity, Severity::warning);
  for (auto& [rank, result] : measured.results)
    result.seconds[1] = 2;  // one slow iteration is not a fault
  EXPECT_EQ(evaluate_collective_speed(measured, std::nullopt, pairs).severity, Severity::ok);
  for (auto& [rank, result] : measured.results) result.seconds = {20, 30, 25};
  PairBasis crowded = pairs;
  crowded.processors_shared = true;
  EXPECT_EQ(evaluate_collective_speed(measured, std::nullopt, crowded).severity, Severity::ok);
  PairBasis noisy = pairs;
  noisy.noisy = true;
  const Finding not_compared = evaluate_collective_speed(measured, std::nullopt, noisy);
  EXPECT_EQ(not_compared.severity, Severity::ok);
  EXPECT_THAT(not_compared.rule, HasSubstr("the pairs vary too much"));
  EXPECT_EQ(evaluate_collective_speed(measured, std::nullopt, {}).severity, Severity::ok);
}

TEST(EvaluateCollective, SlowSmallAllReduceIsAWarning) {
  const PairBasis pairs = pair_basis_of(pairs_at(1e9, 1e-5));
  auto measured = reduced();
  measured.elements = 2;
  for (auto& [rank, result] : measured.results) result.seconds = {1e-4, 8e-3};
  EXPECT_EQ(complaints(evaluate_collective_latency(measured, pairs)), "");
  for (auto& [rank, result] : measured.results) result.seconds = {7.9e-3, 8e-3};
  EXPECT_EQ(complaints(evaluate_collective_latency(measured, pairs)),
            "mpi.all_reduce_latency =WARNING");
}

TEST(EvaluateCollective, TasksThatShareCoresAreNotCompared) {
  auto present = reports({"n1", "n1", "n2"});
  for (auto& [rank, hello] : present) {
    hello.host = hello.node;
    hello.processors = 4;
  }
  EXPECT_FALSE(processors_shared(present));
  present[0].processors = present[1].processors = 2;
  EXPECT_TRUE(processors_shared(present));
  present[0].processors = present[1].processors = 0;  // unknown
  EXPECT_TRUE(processors_shared(present));
}

TEST(EvaluateCollective, MissingResultIsUnknown) {
  CollectiveMeasured none;
  none.ranks = 4;
  EXPECT_EQ(complaints(evaluate_collective_whole(none, std::nullopt)), "mpi.all_reduce =UNKNOWN");
}

}  // namespace
}  // namespace ddp::check
