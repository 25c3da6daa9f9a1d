// SPDX-License-Identifier: Apache-2.0
// Tests the verdicts on collectives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_collective.h"
#include "tests/unit/check/net/evaluate/evaluate_fixtures.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

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
  EXPECT_EQ(complaints(evaluate_collective_whole(reduced(), 1.6e9)), "mpi.all_reduce=CRITICAL");
}

TEST(EvaluateCollective, WrongSumsNameTheirNode) {
  auto measured = reduced();
  measured.results[1].mismatch.count = 7;
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)),
            "mpi.all_reduce_data n2=CRITICAL");
  for (auto& [rank, result] : measured.results) result.mismatch.count = 7;
  EXPECT_EQ(complaints(evaluate_collective_whole(measured, std::nullopt)),
            "mpi.all_reduce_data=CRITICAL");
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
            "mpi.reduce_scatter_data n2=CRITICAL, mpi.reduce_scatter=CRITICAL");
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
            "mpi.all_reduce_latency=WARNING");
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
  EXPECT_EQ(complaints(evaluate_collective_whole(none, std::nullopt)), "mpi.all_reduce=UNKNOWN");
}

}  // namespace
}  // namespace ddp::check
