// SPDX-License-Identifier: Apache-2.0
// Tests one exchange between two ranks that are threads, over a real Group: the data is verified,
// and faults are detected at the right end.
#include "ddp_runtime/check/net/measure/exchange.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>

#include "ddp_runtime/check/net/measure/pair_links.h"
#include "ddp_runtime/comm/p2p/run_ranks.h"

namespace ddp::check {
namespace {

std::array<ExchangeResult, 2> exchange_with(const Faults& of_first, const Faults& of_second,
                                            std::size_t bytes, std::uint64_t seed_of_second = 9) {
  std::array<ExchangeResult, 2> results;
  std::mutex mutex;
  comm::run_ranks(2, [&](comm::Group& group) {
    const bool first = group.rank() == 0;
    const auto link = link_by_group(group, 1 - group.rank());
    const ExchangePlan plan{first, bytes, first ? 9 : seed_of_second, first ? of_first : of_second};
    const ExchangeResult result = exchange(*link, plan);
    const std::lock_guard lock(mutex);
    results[static_cast<std::size_t>(group.rank())] = result;
  });
  return results;
}

class ExchangeSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(ExchangeSizes, BothEndsReceiveTheDataSent) {
  for (const auto& result : exchange_with({}, {}, GetParam())) {
    EXPECT_EQ(result.wrong_bytes, 0);
    EXPECT_GT(result.received_per_second, 0);
    EXPECT_GT(result.latency_seconds, 0);
  }
}

// One byte, less than a warm-up piece, one segment, several segments with a remainder.
INSTANTIATE_TEST_SUITE_P(Table, ExchangeSizes, testing::Values(1, 31, 4 << 20, (9 << 20) + 5));

TEST(Exchange, CorruptionIsDetectedWhereItHappens) {
  Faults corrupt;
  corrupt.corrupt = true;
  const auto results = exchange_with({}, corrupt, 1 << 20);
  EXPECT_EQ(results[0].wrong_bytes, 0);
  EXPECT_EQ(results[1].wrong_bytes, 1);
}

TEST(Exchange, DataOfAnotherExchangeIsDetected) {
  const auto results = exchange_with({}, {}, 1 << 20, 10);
  EXPECT_GT(results[0].wrong_bytes, 1'000'000);
  EXPECT_GT(results[1].wrong_bytes, 1'000'000);
}

TEST(LostBytes, DuplicatesDoNotCountAsLost) {
  EXPECT_EQ(bytes_lost(0, 0, 1448), 0);
  EXPECT_EQ(bytes_lost(100, 0, 1448), 144800) << "the receiver reports no duplicates";
  EXPECT_EQ(bytes_lost(100, 40, 1448), 50 * 1448) << "a quarter more than reported";
  EXPECT_EQ(bytes_lost(100, 90, 1448), 0);
  EXPECT_EQ(bytes_lost(100, 103, 1448), 0) << "duplicates of earlier segments";
  EXPECT_EQ(bytes_lost(100, 4000000000U, 1448), 0);
  EXPECT_EQ(bytes_lost(4000000000U, 0, 65483), 261932000000000);
}

// The amount is limited to about one second of data, even on a slow link or a busy machine.
TEST(Exchange, AmountKeepsTheTimeLimit) {
  constexpr std::size_t kMiBs = std::size_t{1} << 20;
  EXPECT_EQ(amount_for(32 * kMiBs, 1e9), 32 * kMiBs);
  EXPECT_EQ(amount_for(32 * kMiBs, 10e6), 10'000'000U);
  EXPECT_EQ(amount_for(32 * kMiBs, 3e6), 4 * kMiBs);  // beyond the bursts of a shaped link
  EXPECT_EQ(amount_for(32 * kMiBs, 0.5e6), 1'000'000U);
  EXPECT_EQ(amount_for(32 * kMiBs, 1), 64U << 10);
  EXPECT_EQ(amount_for(1000, 1), 1000U);
}

// Counts the transferred bytes, so that the test does not measure time.
class CountingLink final : public PairLink {
 public:
  CountingLink(PairLink& link, std::size_t& most) : link_(link), most_(most) {}
  void send(std::span<std::byte> data) override {
    most_ += data.size();
    link_.send(data);
  }
  void receive(std::span<std::byte> data) override { link_.receive(data); }

 private:
  PairLink& link_;
  std::size_t& most_;
};

// If either end is throttled to a ten-thousandth, both ends send and receive less.
TEST(Exchange, ThrottledEndExchangesLess) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  std::array<std::size_t, 2> sent{};
  comm::run_ranks(2, [&](comm::Group& group) {
    const bool first = group.rank() == 0;
    const auto link = link_by_group(group, 1 - group.rank());
    CountingLink counting(*link, sent[static_cast<std::size_t>(group.rank())]);
    ExchangePlan plan{first, kBytes, 9, {}};
    if (!first) plan.faults.speed = 1e-4;
    exchange(counting, plan);
  });
  // The warm-up is an eighth of the data, and little more follows.
  EXPECT_LT(sent[0], kBytes / 2);
  EXPECT_LT(sent[1], kBytes / 2);
}

}  // namespace
}  // namespace ddp::check
