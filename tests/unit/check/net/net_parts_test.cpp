// SPDX-License-Identifier: Apache-2.0
// Tests small parts of the network check: data verification and injected faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/check/findings/pattern.h"
#include "ddp_runtime/check/net/measure/exact_sum.h"
#include "ddp_runtime/check/net/measure/inject.h"
#include "tests/unit/error_of.h"

namespace ddp::check {
namespace {

TEST(Pattern, CountsEveryChangedByte) {
  std::vector<std::byte> data(1003);
  fill_pattern(data, 42);
  EXPECT_EQ(count_wrong(data, 42), 0);
  data[0] ^= std::byte{1};
  data[500] ^= std::byte{128};
  data[1002] ^= std::byte{7};
  EXPECT_EQ(count_wrong(data, 42), 3);
}

TEST(Pattern, SwappedSegmentsAreDetected) {
  std::vector<std::byte> data(65536);
  fill_pattern(data, 42);
  std::swap_ranges(data.begin(), data.begin() + 4096, data.begin() + 8192);
  EXPECT_GT(count_wrong(data, 42), 8000);
  EXPECT_GT(count_wrong(data, 43), 60000);  // data of another seed is detected, too
}

TEST(ExactSum, IsTheSumOfTheRanksContributions) {
  constexpr int kRanks = 7;
  constexpr std::size_t kElements = 10000;
  const ExactSum sum(5, kRanks);
  std::vector<float> total(kElements, 0.0F);
  std::vector<float> mine(kElements);
  std::set<float> values;
  for (int rank = 0; rank < kRanks; ++rank) {
    sum.fill(rank, mine);
    for (std::size_t i = 0; i < kElements; ++i) {
      total[i] += mine[i];
      values.insert(mine[i]);
    }
  }
  EXPECT_EQ(compare(sum, total).count, 0);
  EXPECT_EQ(*values.begin(), -64);
  EXPECT_EQ(*values.rbegin(), 64);
  EXPECT_EQ(values.size(), 129U);
}

TEST(ExactSum, NamesTheFirstWrongElement) {
  const ExactSum sum(5, 1);
  std::vector<float> data(9000);
  sum.fill(0, data);
  const float right = data[4500];
  data[4500] += 1;
  data[8999] = 1e9F;
  const Mismatch mismatch = compare(sum, data);
  EXPECT_EQ(mismatch.count, 2);
  EXPECT_EQ(mismatch.first, 4500U);
  EXPECT_EQ(mismatch.got, right + 1);
  EXPECT_EQ(mismatch.wanted, right);
}

TEST(ExactSum, LostContributionIsDetected) {
  const ExactSum sum(5, 2);
  std::vector<float> data(4099);
  sum.fill(0, data);
  EXPECT_GT(compare(sum, data).count, 4000);
}

TEST(ExactSum, SharesAndInputsAreVerifiedByPosition) {
  constexpr int kRanks = 3;
  constexpr std::size_t kEach = 5000;
  const ExactSum sum(5, kRanks);
  std::vector<float> gathered(kRanks * kEach);
  std::vector<float> share(kEach);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<std::size_t>(rank) * kEach;
    sum.fill(rank, std::span(gathered).subspan(at, kEach));
    for (std::size_t i = 0; i < kEach; ++i) share[i] = sum.expected(at + i);
    EXPECT_EQ(compare(sum, share, at).count, 0);
    EXPECT_GT(compare(sum, share, at + 1).count, 4000);
  }
  EXPECT_EQ(compare_inputs(sum, gathered, kRanks).count, 0);
  std::swap_ranges(gathered.begin(), gathered.begin() + kEach, gathered.begin() + kEach);
  EXPECT_GT(compare_inputs(sum, gathered, kRanks).count, 9000) << "ranks in the wrong order";
}

TEST(Inject, ParsesEveryKind) {
  const auto injections =
      parse_injections({"slow:n1:0.25,hang:n2", "hang:n3:mpi", "corrupt:n4,missing:n5"});
  EXPECT_EQ(faults_of("n1", injections).speed, 0.25);
  EXPECT_EQ(faults_of("n2", injections).hang, TransportKind::tcp);
  EXPECT_EQ(faults_of("n3", injections).hang, TransportKind::mpi);
  EXPECT_TRUE(faults_of("n4", injections).corrupt);
  EXPECT_TRUE(faults_of("n5", injections).missing);
  const Faults none = faults_of("n6", injections);
  EXPECT_EQ(none.speed, 1.0);
  EXPECT_FALSE(none.corrupt || none.missing || none.hang);
}

TEST(Inject, OneNodeMayHaveSeveralFaults) {
  const auto injections = parse_injections({"slow:n1:0.5,corrupt:n1,slow:n1:0.25"});
  EXPECT_EQ(faults_of("n1", injections).speed, 0.25);
  EXPECT_TRUE(faults_of("n1", injections).corrupt);
}

TEST(Inject, FaultsBetweenTwoNodesAffectOnlyTheirExchanges) {
  const auto injections =
      parse_injections({"slow:n1+n2:0.5,corrupt:n2+n3,drop:n1+n3:0.1,slow:n1:0.8"});
  EXPECT_EQ(faults_between("n1", "n2", injections).speed, 0.5);
  EXPECT_EQ(faults_between("n2", "n1", injections).speed, 0.5);
  EXPECT_FALSE(faults_between("n1", "n2", injections).corrupt);
  EXPECT_TRUE(faults_between("n3", "n2", injections).corrupt);
  EXPECT_EQ(faults_between("n1", "n3", injections).drop, 0.1);
  EXPECT_EQ(faults_between("n1", "n3", injections).speed, 0.8)
      << "faults of the node itself apply, too";
  EXPECT_EQ(faults_of("n2", injections).speed, 1.0);
  EXPECT_FALSE(faults_of("n3", injections).corrupt);
}

TEST(Inject, RejectsUnknownFaults) {
  for (const char* text :
       {"", "slow", "slow:n1", "slow:n1:1.0", "slow:n1:0", "slow:n1:nan", "slow:n1:0.5x", "hang",
        "hang:", "hang:n1:tcp", "hang:n1+n2", "mtu:n1+n2:1400", "slow:+n2:0.5", "slow:n1+:0.5",
        "slow:n1+n2+n3:0.5", "corrupt:n1:2", "melt:n1", "slow:n1:0.5,"}) {
    EXPECT_THROW(parse_injections({text}), UsageError) << text;
  }
  EXPECT_EQ(
      error_of([] { parse_injections({"slow:n1+n1:0.5"}); }),
      "--inject 'slow:n1+n1:0.5' names a link from a node to itself; name two different nodes");
}

}  // namespace
}  // namespace ddp::check
