// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/p2p_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "ddp_runtime/comm/in_process/run_ranks.h"
#include "ddp_runtime/comm/peer_failure.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(P2pGroup, RejectsEmptySegments) {
  for (const LinkLimits& limits : {LinkLimits{.segment_bytes = 0}, LinkLimits{.window = 0}}) {
    EXPECT_THROW(run_ranks(2, [](Group&) {}, {.limits = limits}), std::invalid_argument);
  }
}

TEST(P2pGroup, RunsCollectivesInTheOrderOfTheCalls) {
  run_ranks(3, [](Group& group) {
    std::vector<std::int64_t> values(50, 1);
    std::vector<Work> works;
    for (auto& value : values) works.push_back(group.all_reduce(buffer_of(value), ReduceOp::sum));
    works.back().wait();
    for (const auto& work : works) EXPECT_TRUE(work.done());
    EXPECT_THAT(values, testing::Each(3));
  });
}

TEST(P2pGroup, BarrierCompletesAfterAThousandQueuedCollectives) {
  run_ranks(4, [](Group& group) {
    std::vector<std::vector<std::int64_t>> data;
    for (std::size_t i = 0; i < 1000; ++i) data.emplace_back(i % 97, static_cast<std::int64_t>(i));
    std::vector<Work> works;
    for (auto& values : data) {
      works.push_back(group.all_reduce(buffer_of(std::span(values)), ReduceOp::sum));
    }
    group.barrier().wait();
    for (std::size_t i = 0; i < data.size(); ++i) {
      EXPECT_TRUE(works[i].done());
      EXPECT_THAT(data[i], testing::Each(4 * static_cast<std::int64_t>(i)));
    }
  });
}

// Otherwise, the thread that waited would not be the one that frees the buffer.
TEST(P2pGroup, FinishedCollectiveHoldsNoBuffer) {
  run_ranks(2, [](Group& group) {
    int held = 0;
    for (int i = 0; i < 2000; ++i) {
      const auto value = std::make_shared<float>(1.0F);
      group.all_reduce(buffer_of(*value), ReduceOp::sum, {}, value).wait();
      if (value.use_count() > 1) ++held;
    }
    EXPECT_EQ(held, 0);
  });
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
    run_ranks(
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

TEST(P2pGroup, TextsOfDifferentLengthsAreGathered) {
  run_ranks(4, [](Group& group) {
    const std::string mine(static_cast<std::size_t>(group.rank()) * 3, 'x');
    EXPECT_THAT(group.all_gather_text(mine),
                testing::ElementsAre("", "xxx", "xxxxxx", "xxxxxxxxx"));
    EXPECT_EQ(group.broadcast_text(group.rank() == 2 ? "from two" : "ignored", 2), "from two");
    EXPECT_EQ(group.broadcast_text("", 0), "");
  });
}

// Two ranks exchange messages between collectives of all three, without affecting the third rank.
TEST(P2pGroup, PointToPointDoesNotDisturbCollectives) {
  run_ranks(3, [](Group& group) {
    for (int round = 0; round < 5; ++round) {
      std::int64_t value = group.rank() == 0 ? 42 + round : 0;
      if (group.rank() == 0) group.send(buffer_of(value), 1).wait();
      if (group.rank() == 1) {
        group.receive(buffer_of(value), 0).wait();
        EXPECT_EQ(value, 42 + round);
      }
      EXPECT_EQ(group.all_reduce_value<std::int64_t>(1, ReduceOp::sum), 3);
    }
  });
}

// Large messages cannot complete before they are received, so a rank whose sends blocked its
// receives would wait forever.
TEST(P2pGroup, AllRanksMaySendFirstAndThenReceive) {
  run_ranks(4,
            [](Group& group) {
              const auto ranks = static_cast<std::size_t>(group.size());
              std::vector<std::vector<std::int64_t>> out(ranks);
              std::vector<std::vector<std::int64_t>> in(ranks);
              std::vector<Work> works;
              for (int round = 0; round < 2;
                   ++round) {  // two messages without a wait, which must keep their order
                for (int peer = 0; peer < group.size(); ++peer) {
                  if (peer == group.rank()) continue;
                  auto& data = out[static_cast<std::size_t>(peer)];
                  data.assign(5000, 100 * group.rank() + peer);
                  works.push_back(group.send(buffer_of(std::span(data)), peer, "there"));
                }
              }
              EXPECT_EQ(group.all_reduce_value<std::int64_t>(1, ReduceOp::sum), 4);
              for (int round = 0; round < 2; ++round) {
                for (int peer = 0; peer < group.size(); ++peer) {
                  if (peer == group.rank()) continue;
                  auto& data = in[static_cast<std::size_t>(peer)];
                  data.resize(5000);
                  works.push_back(group.receive(buffer_of(std::span(data)), peer, "back"));
                }
              }
              for (const auto& work : works) work.wait();
              for (int peer = 0; peer < group.size(); ++peer) {
                if (peer == group.rank()) continue;
                EXPECT_THAT(in[static_cast<std::size_t>(peer)],
                            testing::Each(100 * peer + group.rank()));
              }
            },
            {.limits = {.segment_bytes = 256, .timeout = 30s}});
}

TEST(P2pGroup, MissingMessageIsNamedOnTimeout) {
  const auto text = error_of([] {
    run_ranks(2,
              [](Group& group) {
                std::vector<float> data(10000);
                if (group.rank() == 0) {
                  group.receive(buffer_of(std::span(data)), 1, "activations").wait();
                } else {
                  std::this_thread::sleep_for(400ms);
                }
              },
              {.limits = {.timeout = 100ms}});
  });
  EXPECT_THAT(text, HasSubstr("rank 0 waited"));
  EXPECT_THAT(text, HasSubstr("in receive (activations) for rank 1"));
}

TEST(P2pGroup, ExceptionOnOneRankEndsTheWaitsOfAll) {
  std::atomic<int> told{0};
  const auto text = error_of([&] {
    run_ranks(4, [&](Group& group) {
      if (group.rank() == 2) throw std::runtime_error("no more coffee");
      try {
        group.barrier().wait();
      } catch (const PeerFailure& failure) {
        EXPECT_EQ(failure.rank(), 2);
        EXPECT_STREQ(failure.what(), "no more coffee");
        ++told;
        throw;
      }
    });
  });
  EXPECT_EQ(text, "no more coffee");
  EXPECT_EQ(told, 3);
}

TEST(P2pGroup, MissingRankIsNamedOnTimeout) {
  const auto text = error_of([] {
    run_ranks(2,
              [](Group& group) {
                if (group.rank() == 1) {
                  std::this_thread::sleep_for(400ms);  // alive, but does not call the collective
                  return;
                }
                float value = 1;
                group.all_reduce(buffer_of(value), ReduceOp::sum, "bucket 3").wait();
              },
              {.limits = {.timeout = 100ms}});
  });
  EXPECT_THAT(text, HasSubstr("rank 0 waited"));
  EXPECT_THAT(text, HasSubstr("all_reduce #0 (bucket 3)"));
  EXPECT_THAT(text, HasSubstr("rank 1"));
}

TEST(P2pGroup, RanksThatDisagreeOnLengthFailTogether) {
  const auto text = error_of([] {
    run_ranks(2,
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

TEST(P2pGroup, RejectsWrongArgumentsAtTheCall) {
  run_ranks(2, [](Group& group) {
    std::vector<float> four(4);
    std::vector<float> three(3);
    EXPECT_THROW(group.all_gather(buffer_of(std::span(four)), buffer_of(std::span(three))),
                 std::invalid_argument);
    EXPECT_THROW(group.reduce_scatter(buffer_of(std::span(three)), buffer_of(std::span(four)),
                                      ReduceOp::sum),
                 std::invalid_argument);
    EXPECT_THROW(group.broadcast(buffer_of(std::span(four)), 2), std::invalid_argument);
    EXPECT_THROW(group.send(buffer_of(std::span(four)), group.rank()), std::invalid_argument);
  });
}

TEST(P2pGroup, RejectsDeviceMemory) {
  run_ranks(2, [](Group& group) {
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
  run_ranks(2, [](Group& group) {
    std::int64_t one = 1;
    const Work work = group.all_reduce(buffer_of(one), ReduceOp::sum);
    group.rank() == 0 ? work.wait_on(nullptr) : work.wait_host();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(one, 2);
  });
}

// Ranks call two collectives in different orders, which would deadlock on one channel.
TEST(P2pGroup, ChannelHasItsOwnOrder) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Group& group) {
      Group& channel = group.channel("norm");
      EXPECT_EQ(channel.rank(), group.rank());
      EXPECT_EQ(channel.size(), ranks);
      EXPECT_EQ(&group.channel("norm"), &channel);
      for (int round = 0; round < 20; ++round) {
        std::int64_t one = 1;
        std::int64_t ten = 10;
        const bool first = (round + group.rank()) % 2 == 0;
        Work a = first ? group.all_reduce(buffer_of(one), ReduceOp::sum) : Work();
        channel.all_reduce(buffer_of(ten), ReduceOp::sum).wait();
        if (!first) a = group.all_reduce(buffer_of(one), ReduceOp::sum);
        a.wait();
        EXPECT_EQ(one, ranks);
        EXPECT_EQ(ten, 10 * ranks);
      }
    });
  }
}

TEST(P2pGroup, ChannelHasItsOwnSharedMemory) {
  run_ranks(3, [](Group& group) {
    std::vector<std::shared_ptr<std::byte>> memory;
    for (Group* g : {&group, &group.channel("norm")}) {
      memory.push_back(g->allocate(1024));
      auto* values = reinterpret_cast<float*>(memory.back().get());
      std::fill(values, values + 256, 1.0F);
      g->all_reduce(buffer_of(std::span(values, 256)), ReduceOp::sum).wait();
      EXPECT_EQ(values[255], 3.0F);
    }
  });
}

TEST(P2pGroup, CommonMemoryIsTheSameForAllRanks) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [](Group& group) {
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

TEST(P2pGroup, FailureEndsWaitsInAChannelToo) {
  const auto text = error_of([] {
    run_ranks(3, [](Group& group) {
      Group& channel = group.channel("norm");
      if (group.rank() == 1) throw std::runtime_error("no more tea");
      channel.barrier("statistics").wait();
    });
  });
  EXPECT_EQ(text, "no more tea");
}

TEST(P2pGroup, WaitReportNamesTheChannel) {
  const auto text = error_of([] {
    run_ranks(2,
              [](Group& group) {
                Group& channel = group.channel("norm");
                if (group.rank() == 1) {
                  std::this_thread::sleep_for(400ms);
                  return;
                }
                channel.barrier("statistics").wait();
              },
              {.limits = {.timeout = 100ms}});
  });
  EXPECT_THAT(text, HasSubstr("in norm barrier #0 (statistics) for rank 1"));
}

TEST(P2pGroup, TimesShowWhenACollectiveRan) {
  run_ranks(2, [](Group& group) {
    float value = 1;
    const Work work = group.all_reduce(buffer_of(value), ReduceOp::sum);
    work.wait();
    const WorkTimes times = work.times();
    EXPECT_LE(times.queued, times.started);
    EXPECT_LE(times.started, times.finished);
  });
}

}  // namespace
}  // namespace ddp::comm
