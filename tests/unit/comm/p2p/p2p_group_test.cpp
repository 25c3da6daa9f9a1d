// SPDX-License-Identifier: Apache-2.0
// Tests groups of hosts beyond the contract of all groups.
#include "ddp_runtime/comm/p2p/p2p_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(P2pGroup, RejectsEmptySegments) {
  for (const LinkLimits& limits : {LinkLimits{.segment_bytes = 0}, LinkLimits{.window = 0}}) {
    EXPECT_THROW(test::run_ranks(2, [](Group&) {}, {.limits = limits}), std::invalid_argument);
  }
}

// All ranks must choose the same schedules, with and without a measurement, and rank 0 reports the
// choice once.
TEST(P2pGroup, SurveysTheNetworkOnce) {
  for (const char* network : {"assume", "measure", "1:1", "1000:1000"}) {
    std::atomic<int> told{0};
    GroupOptions options;
    options.network = parse_network(network);
    options.announce = [&](const std::string& text) {
      ++told;
      EXPECT_THAT(text,
                  ContainsRegex("^(assumed|measured|given) latency .* us, .* Gbit/s per rank: "
                                "all-reduce by .*(doubling|halving|ring)$"));
    };
    const auto node_of = [](int rank) { return rank % 2; };
    test::run_ranks(
        5,
        [](Group& group) {
          EXPECT_EQ(group.all_reduce_value<std::int64_t>(1, ReduceOp::sum), 5);
          for (const std::size_t count : {1000U, 5000U, 100000U}) {
            std::vector<std::int64_t> data(count, group.rank());
            group.all_reduce(buffer_of(std::span(data)), ReduceOp::sum).wait();
            EXPECT_THAT(data, testing::Each(10));
            data.assign(count, group.rank());
            group.broadcast(buffer_of(std::span(data)), 3).wait();
            EXPECT_THAT(data, testing::Each(3));
          }
        },
        options, node_of);
    EXPECT_EQ(told, 1) << network;
  }
}

// Rank 1 is alive, but does not call.
TEST(P2pGroup, MissingRankIsNamedOnTimeout) {
  const auto error = [](const std::function<void(Group&)>& wait) {
    std::atomic<bool> over = false;
    const auto body = [&](Group& group) {
      group.channel("norm");
      while (group.rank() == 1 && !over) std::this_thread::sleep_for(1ms);
      if (group.rank() == 1) return;
      try {
        wait(group);
      } catch (...) {
        over = true;
        throw;
      }
    };
    return error_of([&] { test::run_ranks(2, body, {.limits = {.timeout = 100ms}}); });
  };
  std::vector<float> data(10000);
  const Buffer buffer = buffer_of(std::span(data));
  EXPECT_THAT(
      error([&](Group& group) { group.all_reduce(buffer, ReduceOp::sum, "bucket 3").wait(); }),
      ContainsRegex("^rank 0 waited .* in all_reduce #1 \\(bucket 3\\) for rank 1"));
  EXPECT_THAT(error([&](Group& group) { group.receive(buffer, 1, "activations").wait(); }),
              ContainsRegex("^rank 0 waited .* in receive \\(activations\\) for rank 1"));
  EXPECT_THAT(error([](Group& group) { group.channel("norm").barrier("statistics").wait(); }),
              ContainsRegex("^rank 0 waited .* in norm barrier #0 \\(statistics\\) for rank 1"));
}

TEST(P2pGroup, RanksThatDisagreeOnLengthFailTogether) {
  const auto text = error_of([] {
    test::run_ranks(2,
                    [](Group& group) {
                      std::vector<float> data(group.rank() == 0 ? 10 : 12);
                      group.all_reduce(buffer_of(std::span(data)), ReduceOp::sum).wait();
                    },
                    {.limits = {.timeout = 5s}});
  });
  EXPECT_THAT(text,
              ContainsRegex("rank (0 expected a message of 40 bytes from rank 1|1 expected a "
                            "message of 48 bytes from rank 0), which sent a different length"));
}

TEST(P2pGroup, RejectsDeviceMemory) {
  test::run_ranks(2, [](Group& group) {
    std::vector<float> values(4);
    std::vector<float> all(8);
    Buffer here = buffer_of(std::span(values));
    Buffer there = here;
    there.memory = Memory::device;
    Buffer both = buffer_of(std::span(all));
    const auto text = HasSubstr("the buffer is in the memory of a device");
    EXPECT_THAT(error_of([&] { group.all_reduce(there, ReduceOp::sum); }), text);
    EXPECT_THAT(error_of([&] { group.reduce_scatter(both, there, ReduceOp::sum); }), text);
    EXPECT_THAT(error_of([&] { group.all_gather(there, both); }), text);
    EXPECT_THAT(error_of([&] { group.broadcast(there.slice(1, 2), 0); }), text);
    EXPECT_THAT(error_of([&] { group.send(there, 1 - group.rank()); }), text);
    EXPECT_THAT(error_of([&] { group.receive(there, 1 - group.rank()); }), text);
  });
}

// Every wait of a collective of host memory blocks until it is done.
TEST(P2pGroup, AllWaitsBlock) {
  test::run_ranks(2, [](Group& group) {
    std::int64_t one = 1;
    const Work work = group.all_reduce(buffer_of(one), ReduceOp::sum);
    group.rank() == 0 ? work.wait_on(nullptr) : work.wait_host();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(one, 2);
  });
}

TEST(P2pGroup, CommonMemoryIsTheSameForAllRanks) {
  for (const int ranks : {1, 3}) {
    test::run_ranks(ranks, [](Group& group) {
      const auto memory = group.allocate_common(1024);
      auto* values = reinterpret_cast<std::int32_t*>(memory.get());
      EXPECT_EQ(values[0], 0);
      group.barrier().wait();
      values[group.rank()] = 10 + group.rank();
      group.barrier().wait();
      for (int r = 0; r < group.size(); ++r) EXPECT_EQ(values[r], 10 + r);
    });
  }
}

}  // namespace
}  // namespace ddp::comm
