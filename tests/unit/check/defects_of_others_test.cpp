// SPDX-License-Identifier: Apache-2.0
// Tests ddp-check for defects that were found in other checking tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/simulate.h"
#include "ddp_runtime/check/net/measure/pair_links.h"
#include "ddp_runtime/check/node/infiniband_check.h"
#include "ddp_runtime/check/verdict.h"
#include "tests/unit/check/evaluate_fixtures.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

Finding bandwidth(const std::string& node, Severity severity, const std::string& evidence) {
  Finding finding;
  finding.check = "tcp.send";
  finding.severity = severity;
  finding.node = node;
  finding.evidence = evidence;
  return finding;
}

PairsMeasured fleet_with_slow_node(int nodes, int slow, double speed) {
  auto measured = fleet(nodes);
  for (auto& result : measured.results) {
    if (result.pair.a == slow || result.pair.b == slow) result.a_to_b = result.b_to_a = speed;
  }
  return measured;
}

Verdict verdict_of(const PairsMeasured& measured) {
  Verdict verdict;
  verdict.command = "net";
  verdict.nodes = measured.nodes;
  verdict.findings.add(evaluate_pairs(measured, {}));
  return verdict;
}

// One tool wrote WARN and then PASS to the same file, so that low bandwidth disappeared.
TEST(DefectsOfOthers, PassDoesNotOverwriteAWarning) {
  Findings findings;
  findings.add(bandwidth("n1", Severity::warning, "slow"));
  findings.add(bandwidth("n1", Severity::ok, ""));
  EXPECT_EQ(findings.severity(), Severity::warning);
  EXPECT_EQ(findings.all().front().evidence, "slow");
}

// One tool checked a limit only if it found a number in a text that never contained a number.
TEST(DefectsOfOthers, UnreadableNumberDoesNotPass) {
  fabric::InfinibandPort port;
  port.device = "mlx5_0";
  port.port = 1;
  port.state = "ACTIVE";
  port.phys_state = "LinkUp";
  port.link_layer = "InfiniBand";
  port.rate_text = "fast";
  Findings findings;
  findings.add(evaluate_infiniband(std::vector{port}));
  EXPECT_EQ(findings.severity(), Severity::unknown);
  EXPECT_EQ(Findings().severity(), Severity::unknown);  // nothing measured at all
}

// One tool had a fixed threshold of unknown origin, which half of a set of identical machines did
// not reach.
TEST(DefectsOfOthers, ThresholdComesFromTheNodesThemselves) {
  for (const auto& finding : evaluate_pairs(fleet_with_slow_node(6, 2, 0.5e9), {})) {
    if (finding.node != "n3") continue;
    EXPECT_THAT(finding.rule, HasSubstr("median"));
    EXPECT_THAT(finding.evidence, HasSubstr("1 GB/s"));
    EXPECT_EQ(finding.expected, "at least 0.9 GB/s");
  }
  // The same machines, all ten times slower: no node stands out.
  auto slower = fleet(6);
  for (auto& result : slower.results) result.a_to_b = result.b_to_a = 1e8;
  EXPECT_TRUE(bad_nodes(verdict_of(slower)).empty());
}

// One tool took the exit status of a background job for that of its server.
TEST(DefectsOfOthers, DeadServerIsAnError) {
  std::uint16_t port = 0;
  {
    const Listener gone = listen_on(0);
    port = gone.port;
  }
  EXPECT_THROW(
      call_peer("127.0.0.1", port, std::string(32, '1'), Clock::now() + std::chrono::seconds(5)),
      NetError);
  auto measured = fleet(4);
  for (auto& result : measured.results) {
    if (result.pair.b == 3) result.failure = "n1: connection refused";
  }
  EXPECT_EQ(exit_code_of(verdict_of(measured).severity()), 2);
}

// One tool reported CRITICAL with the text of the last pair, "run successfully", and without a host
// name.
TEST(DefectsOfOthers, VerdictNamesTheNode) {
  const Verdict verdict = verdict_of(fleet_with_slow_node(6, 2, 0.1e9));
  EXPECT_THAT(verdict_line(verdict), HasSubstr("n3 (tcp.send)"));
  EXPECT_THAT(verdict_line(verdict), testing::Not(HasSubstr("n6")));
}

// One tool reported suspects with exit code 0, and omitted the last node of an odd number.
TEST(DefectsOfOthers, SuspectsFailAndNoNodeIsLeftOut) {
  EXPECT_NE(exit_code_of(verdict_of(fleet_with_slow_node(6, 2, 0.85e9)).severity()), 0);
  for (const int nodes : {5, 9, 33}) {
    std::vector<int> met(static_cast<std::size_t>(nodes), 0);
    for (const auto& round : plan_rounds(nodes, 7)) {
      for (const auto& pair : round) {
        ++met[static_cast<std::size_t>(pair.a)];
        ++met[static_cast<std::size_t>(pair.b)];
      }
    }
    // If the number of nodes is odd, a node may be idle in one round.
    for (const int count : met) EXPECT_GE(count, kSampledRounds - 1) << nodes << " nodes";
  }
  auto measured = fleet(5);
  std::erase_if(measured.results, [](const PairResult& r) { return r.pair.b == 4; });
  EXPECT_EQ(verdict_of(measured).severity(), Severity::unknown);  // n5 is listed as untested
}

// One tool named two stragglers in every healthy job.
TEST(DefectsOfOthers, HealthyRunsNameNoNode) {
  Simulation healthy;
  healthy.bad = 0;
  healthy.nodes = 128;
  healthy.trials = 50;
  EXPECT_EQ(simulate(healthy, {}).false_alarms, 0);
}

}  // namespace
}  // namespace ddp::check
