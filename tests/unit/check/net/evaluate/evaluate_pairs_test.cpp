// SPDX-License-Identifier: Apache-2.0
// Tests which nodes and links the exchanges of pairs blame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ddp_runtime/check/findings/verdict.h"
#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "tests/unit/check/net/evaluate/evaluate_fixtures.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

std::string said(const PairsMeasured& measured, const PairRules& rules = {}) {
  return complaints(evaluate_pairs(measured, rules));
}

template <class Change>
void change_pairs_of(PairsMeasured& measured, int node, const Change& change) {
  for (auto& result : measured.results) {
    if (result.pair.a == node || result.pair.b == node) change(result);
  }
}

PairsMeasured slowed(PairsMeasured measured, int node, double speed) {
  change_pairs_of(measured, node, [speed](PairResult& r) { r.a_to_b = r.b_to_a = speed; });
  return measured;
}

PairsMeasured with_link_rate(PairsMeasured measured, double rate) {
  measured.link_rate.assign(measured.nodes.size(), rate);
  return measured;
}

TEST(EvaluatePairs, SpeedsAreComparedWithThoseOfOtherNodesAndWithTheLinks) {
  struct Case {
    PairsMeasured measured;
    const char* findings;
  };
  constexpr double kGigabit = 0.125e9;
  const std::vector<Case> cases{
      {fleet(8), ""},
      {slowed(fleet(6), 2, 0.5e9), "tcp.send n3=CRITICAL, tcp.receive n3=CRITICAL"},
      {slowed(fleet(6), 2, 0.85e9), "tcp.send n3=WARNING, tcp.receive n3=WARNING"},
      // A cluster that is slow as a whole passes every comparison between its nodes.
      {fleet(6, 1e8), ""},
      {with_link_rate(fleet(2, 0.05e9), kGigabit), "tcp.link_rate n1/n2=CRITICAL"},
      {with_link_rate(fleet(2, 0.09e9), kGigabit), "tcp.link_rate n1/n2=WARNING"},
      {with_link_rate(fleet(2, 0.117e9), kGigabit), ""},
      {with_link_rate(slowed(fleet(3, 0.117e9), 1, 0.02e9), kGigabit), "tcp.link_rate n2=CRITICAL"},
      {with_link_rate(fleet(4, 0.02e9), kGigabit), "tcp.link_rate=CRITICAL"},
      {fleet(2, 0.001e9), ""},  // links of unknown rate
      // One stream is not expected to fill a link of 400 Gb/s.
      {with_link_rate(fleet(2, 3e9), 50e9), ""}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(said(cases[i].measured), cases[i].findings) << "case " << i;
  }
  auto one_end = with_link_rate(fleet(2, 0.05e9), kGigabit);
  one_end.link_rate[1].reset();
  EXPECT_EQ(said(one_end), "") << "the rate of the other end is unknown";
}

// A fixed threshold of unknown origin would blame half of a set of identical machines.
TEST(EvaluatePairs, ThresholdComesFromTheNodesThemselves) {
  const auto findings = evaluate_pairs(slowed(fleet(6), 2, 0.5e9), {});
  const auto found = std::ranges::find(findings, "n3", &Finding::node);
  ASSERT_NE(found, findings.end());
  EXPECT_THAT(found->rule, HasSubstr("median"));
  EXPECT_THAT(found->evidence, HasSubstr("1 GB/s"));
  EXPECT_EQ(found->expected, "at least 0.9 GB/s");
}

TEST(EvaluatePairs, DirectionIsReported) {
  auto measured = fleet(6);
  change_pairs_of(measured, 2, [](PairResult& r) {
    (r.pair.a == 2 ? r.b_to_a : r.a_to_b) = 0.5e9;  // the direction to node 2
  });
  EXPECT_EQ(said(measured), "tcp.receive n3=CRITICAL");
}

TEST(EvaluatePairs, CorruptDataNamesTheNodeOrTheLink) {
  auto measured = fleet(4);
  change_pairs_of(measured, 1,
                  [](PairResult& r) { (r.pair.a == 1 ? r.wrong_at_a : r.wrong_at_b) = 3; });
  EXPECT_EQ(said(measured), "tcp.data n2=CRITICAL");
  auto one_link = fleet(4);
  one_link.results[0].wrong_at_b = 1;
  EXPECT_EQ(said(one_link), "tcp.data n1/n4=CRITICAL");
}

TEST(EvaluatePairs, FailedExchangesNameTheNodeOrTheNetwork) {
  auto measured = fleet(4);
  change_pairs_of(measured, 1, [](PairResult& r) { r.failure = "refused"; });
  EXPECT_EQ(said(measured),
            "tcp.exchange n2=CRITICAL, tcp.send n2=UNKNOWN, tcp.receive n2=UNKNOWN");
  auto everything = fleet(4);
  for (auto& result : everything.results) result.failure = "refused";
  EXPECT_THAT(said(everything), HasSubstr("tcp.exchange=CRITICAL"));
  EXPECT_THAT(evaluate_pairs(everything, {})[0].evidence, HasSubstr("all 6 pairs"));
}

// A port in --hca that only two of five nodes have.
TEST(EvaluatePairs, ExchangesThatFailOnMostNodesNameNone) {
  const auto said_of_failures_from = [](int first) {
    PairsMeasured measured = fleet(5);
    for (auto& result : measured.results) {
      if (result.pair.a >= first || result.pair.b >= first) result.failure = "no such port";
    }
    auto findings = evaluate_pairs(measured, {});
    std::erase_if(findings, [](const Finding& finding) { return finding.check != "tcp.exchange"; });
    return complaints(findings);
  };
  EXPECT_EQ(said_of_failures_from(3), "tcp.exchange n4=CRITICAL, tcp.exchange n5=CRITICAL");
  EXPECT_EQ(said_of_failures_from(2), "tcp.exchange=CRITICAL");
}

TEST(EvaluatePairs, TimeoutOfASlowNodeBlamesThatNode) {
  auto measured = slowed(fleet(6), 2, 0.01e9);
  for (auto& result : measured.results) {
    if (result.pair == Pair{2, 5}) result.failure = "no more data";
  }
  EXPECT_EQ(said(measured),
            "tcp.exchange n3=CRITICAL, tcp.send n3=CRITICAL, tcp.receive n3=CRITICAL");
}

// A missing measurement is UNKNOWN, unless the node is already reported for another reason.
TEST(EvaluatePairs, NodeWithoutAMeasurementIsUnknown) {
  auto measured = fleet(5);
  std::erase_if(measured.results, [](const PairResult& r) { return r.pair.b == 4; });
  EXPECT_EQ(said(measured), "tcp.send n5=UNKNOWN, tcp.receive n5=UNKNOWN");
  EXPECT_EQ(
      evaluate_pairs(measured, {})[4].evidence,
      "no exchange with this node took place: its partners were lost, or rank 0 was suspended");
  measured.already_flagged[4] = true;
  EXPECT_EQ(said(measured), "");
}

// Its exchanges are only as fast as its partners' links.
TEST(EvaluatePairs, OnlyNodeWithAFastLinkIsNotUnknown) {
  auto measured = fleet(2);
  measured.classes = {0, 1};
  const auto findings = evaluate_pairs(measured, {});
  EXPECT_EQ(complaints(findings), "");
  EXPECT_EQ(line_of(findings[1]), "OK n2 tcp.send: 1 GB/s");
  EXPECT_EQ(findings[1].rule, "not compared: the links of all its partners are slower");
}

TEST(EvaluatePairs, TooFewPeersAreReported) {
  const auto findings = evaluate_pairs(slowed(fleet(3), 2, 0.1e9), {});
  EXPECT_EQ(complaints(findings), "");
  EXPECT_EQ(findings[0].rule, "not compared: 3 nodes are too few for a majority, 4 are needed");
}

// `times` measurements at `speed`, with good pairs at 1 GB/s at the same time.
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
  EXPECT_EQ(said(measured), "");  // not retested
  measured.retests = {retest_of(std::nullopt, link, 0.3e9)};
  EXPECT_EQ(said(measured), "tcp.link n1/n6=CRITICAL");
  measured.retests = {retest_of(std::nullopt, link, 0.7e9)};
  EXPECT_EQ(said(measured), "tcp.link n1/n6=WARNING");
  measured.retests = {retest_of(std::nullopt, link, 0.95e9)};
  EXPECT_EQ(said(measured), "");
}

TEST(EvaluatePairs, NodeThatPassesTheRetestIsCleared) {
  auto measured = slowed(fleet(6), 2, 0.5e9);
  measured.retests = {retest_of(2, {}, 0.97e9)};
  EXPECT_EQ(said(measured), "");
  measured.retests = {retest_of(2, {}, 0.85e9)};
  EXPECT_EQ(said(measured), "tcp.send n3=WARNING, tcp.receive n3=WARNING");
  for (Try& one : measured.retests[0].tries) one.receive = 1e9;  // slow only when it sends
  EXPECT_EQ(said(measured), "tcp.send n3=WARNING");
}

// A ratio between slow and fast is undecided.
TEST(EvaluatePairs, UndecidedRetestIsUnknown) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 0.8e9)};
  measured.retests[0].noise = 0.2;
  EXPECT_EQ(said(measured), "tcp.send n3=UNKNOWN, tcp.receive n3=UNKNOWN");
}

// With more noise, the node is not clearly slower than good pairs. Then it has no finding of its
// own, and one finding reports the slowdown that the noise may hide in any node.
TEST(EvaluatePairs, NoiseBlamesNoNodeAndHasTheSeverityTheUserChose) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 0.8e9)};
  measured.retests[0].noise = 0.3;
  PairRules rules;
  EXPECT_EQ(said(measured, rules), "tcp.noise=UNKNOWN");
  EXPECT_GT(detection_limit_of(measured, rules.peers), 0.2);
  rules.noise = Severity::warning;
  EXPECT_EQ(said(measured, rules), "tcp.noise=WARNING");
  measured.retests[0].noise = 0.2;  // with less noise, the suspect stays a suspect
  EXPECT_EQ(said(measured, rules), "tcp.send n3=UNKNOWN, tcp.receive n3=UNKNOWN");
}

TEST(EvaluatePairs, NodeThatIsSometimesFarBelowIsUnsteady) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 1e9)};
  for (const std::size_t i : {1U, 4U, 7U}) measured.retests[0].tries[i].send = 0.3e9;
  EXPECT_EQ(said(measured), "tcp.unsteady n3=WARNING");
  // The fault appears on one link, and once with other partners of one end.
  measured.retests[0].node.reset();
  measured.retests[0].link = {2, 4};
  measured.retests.push_back(retest_of(2, {}, 1e9));
  measured.retests.push_back(retest_of(4, {}, 1e9));
  EXPECT_EQ(said(measured), "tcp.link n3/n5=WARNING");
  measured.retests[2].tries[3].receive = 0.3e9;
  EXPECT_EQ(said(measured), "tcp.unsteady n5=WARNING");
}

TEST(EvaluatePairs, LateNodeIsAWarning) {
  auto measured = fleet(6);
  measured.retests = {retest_of(2, {}, 1e9)};
  for (Try& one : measured.retests[0].tries) {
    one.latency_seconds = 80e-6;
    one.beside_latency_seconds = 10e-6;
  }
  EXPECT_EQ(said(measured), "tcp.latency n3=WARNING");
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
  EXPECT_THAT(said(measured), HasSubstr("tcp.noise=UNKNOWN"));
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
  EXPECT_NE(said(measured), "");
}

TEST(EvaluatePairs, LinksOfASlowNodeAreNotReported) {
  auto measured = slowed(fleet(6), 2, 0.1e9);
  measured.retests = {retest_of(2, {}, 0.1e9), retest_of(std::nullopt, {2, 3}, 0.1e9)};
  EXPECT_EQ(said(measured), "tcp.send n3=CRITICAL, tcp.receive n3=CRITICAL");
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
  EXPECT_EQ(said(measured), "tcp.loss n2/n5=CRITICAL");
  measured.retests[0].tries[3].lost = 0;  // two tries without loss
  measured.retests[0].tries[5].lost = 0;
  EXPECT_EQ(said(measured), "tcp.loss n2/n5=CRITICAL");
  measured.retests[0].tries[1].lost = 0;
  EXPECT_EQ(said(measured), "");
  measured = fleet(5);
  change_pairs_of(measured, 3, lose);
  EXPECT_EQ(said(measured), "tcp.loss n4=CRITICAL");
}

// On a busy machine, a lossy link and the nodes at its ends are unsteady, too.
TEST(EvaluatePairs, LossExplainsAnUnsteadyLink) {
  auto measured = fleet(6);
  measured.results[0].lost = 0.1;
  const Pair link = measured.results[0].pair;
  measured.retests = {retest_of(std::nullopt, link, 1e9), retest_of(link.a, {}, 1e9),
                      retest_of(link.b, {}, 1e9)};
  Retest& lossy = measured.retests[0];
  lossy.lossy = true;
  for (Try& one : lossy.tries) one.lost = 0.1;
  for (const std::size_t i : {1U, 4U, 7U}) lossy.tries[i].send = 0.3e9;
  EXPECT_EQ(said(measured), "tcp.loss n1/n6=CRITICAL");
  measured.retests[1].tries[3].receive = 0.3e9;  // once, with another partner
  EXPECT_EQ(said(measured), "tcp.loss n1/n6=CRITICAL");
  for (const std::size_t i : {4U, 6U}) measured.retests[1].tries[i].receive = 0.3e9;
  EXPECT_EQ(said(measured), "tcp.unsteady n1=WARNING, tcp.loss n1/n6=CRITICAL")
      << "an unsteady node does not hide the loss";
}

TEST(EvaluatePairs, LossInSlowTriesAloneIsAWarning) {
  auto measured = fleet(6);
  measured.results[0].lost = 0.1;
  const Pair link = measured.results[0].pair;
  measured.retests = {retest_of(std::nullopt, link, 1e9), retest_of(link.a, {}, 1e9)};
  measured.retests[1].tries[3].receive = 0.3e9;
  Retest& lossy = measured.retests[0];
  lossy.lossy = true;
  for (const std::size_t i : {1U, 4U, 7U}) {
    lossy.tries[i].send = 0.3e9;
    lossy.tries[i].lost = 0.1;
  }
  EXPECT_EQ(said(measured), "tcp.loss n1/n6=WARNING");
  lossy.tries[4].lost = 0;  // so loss does not explain the speed
  EXPECT_EQ(said(measured), "tcp.unsteady n1=WARNING");
  lossy.tries[4].lost = 0.1;
  lossy.lossy = false;  // none in the rounds
  EXPECT_EQ(said(measured), "tcp.unsteady n1=WARNING");
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

}  // namespace
}  // namespace ddp::check
