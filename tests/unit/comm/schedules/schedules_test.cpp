// SPDX-License-Identifier: Apache-2.0
// Compares every schedule with a reference, for rank counts that are and are not powers of two, and
// for sizes around every boundary. Segments have a few bytes, so that small data uses the
// many-segment paths.
#include "ddp_runtime/comm/schedules/schedules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/node_broadcast.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"

namespace ddp::comm::schedules {
namespace {

struct Case {
  int ranks;
  std::size_t count;
  std::size_t segment;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return fmt::format("{}ranks_{}elements_{}segment", info.param.ranks, info.param.count,
                     info.param.segment);
}

Subgroup all_ranks(const Link& link) {
  return Subgroup::all(link.rank(), link.size());
}

// Integers as floats, so that any order of summation gives bitwise equal results.
float element(int rank, std::size_t index) {
  return static_cast<float>(
      static_cast<int>((index * 31 + static_cast<std::size_t>(rank) * 17) % 127) - 63);
}

float sum_at(int ranks, std::size_t index) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += element(r, index);
  return sum;
}

class Schedules : public testing::TestWithParam<Case> {
 protected:
  // Runs body(link) for each rank on a separate thread.
  void on_all_ranks(const std::function<void(Link&)>& body) const {
    const Case& c = GetParam();
    FailureState failures;
    auto transports = make_in_process_transports(c.ranks);
    std::vector<std::thread> threads;
    for (auto& transport : transports) {
      threads.emplace_back([&] {
        Link link(*transport, failures,
                  {.segment_bytes = c.segment, .window = 2, .timeout = std::chrono::seconds(20)});
        link.begin(0, "test");
        body(link);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  std::vector<float> input(int rank) const {
    std::vector<float> values(GetParam().count);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(rank, i);
    return values;
  }

  std::vector<float> expected_sum() const {
    std::vector<float> values(GetParam().count);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = sum_at(GetParam().ranks, i);
    return values;
  }
};

using Variant = void (*)(Link&, const Subgroup&, Buffer, ReduceOp, Scratch&);

// Extreme networks: on the first, every size is small; on the second, every size is large.
const std::vector<CostModel> kExtremeNetworks{{{1, 1e-9, 1e-10}, 64}, {{1e-9, 1, 1e-10}, 64}};

TEST_P(Schedules, AllReduceIsCorrect) {
  for (const Variant all_reduce_variant :
       {&all_reduce_doubling, &all_reduce_halving, &all_reduce_ring, &all_reduce_chain,
        &all_reduce_gather_in_order}) {
    if (GetParam().ranks == 1 || GetParam().count == 0) continue;  // without any communication
    on_all_ranks([&](Link& link) {
      Scratch scratch;
      auto data = input(link.rank());
      all_reduce_variant(link, all_ranks(link), buffer_of(std::span(data)), ReduceOp::sum, scratch);
      EXPECT_EQ(data, expected_sum()) << "rank " << link.rank();
    });
  }
}

TEST_P(Schedules, ChosenAllReduceIsCorrect) {
  for (const CostModel& model : kExtremeNetworks) {
    for (const bool in_order : {false, true}) {
      on_all_ranks([&](Link& link) {
        Scratch scratch;
        auto data = input(link.rank());
        const auto chosen = in_order ? all_reduce_in_order : all_reduce;
        chosen(link, all_ranks(link), buffer_of(std::span(data)), ReduceOp::sum, scratch, model);
        EXPECT_EQ(data, expected_sum()) << "rank " << link.rank();
      });
    }
  }
}

// Values whose sum depends on the order of the additions.
float rough(int rank, std::size_t index) {
  return 1.0F / static_cast<float>(3 + (index * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

std::vector<float> rough_input(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = rough(rank, i);
  return values;
}

// Even parts; all in the last one; parts that grow, of which the first is empty.
std::vector<Starts> cuts_of(std::size_t count, int ranks) {
  Starts last(static_cast<std::size_t>(ranks) + 1, 0);
  last.back() = count;
  Starts growing = last;
  const auto n = static_cast<std::size_t>(ranks);
  for (std::size_t r = 0; r <= n; ++r) {
    growing[r] = n == 1 ? r * count : count * r * (r - std::min<std::size_t>(r, 1)) / (n * (n - 1));
  }
  return {even_starts(count, ranks), last, growing};
}

TEST_P(Schedules, PartsHaveTheBitsOfAllReduce) {
  const auto [ranks, count, segment] = GetParam();
  for (const Starts& starts : cuts_of(count, ranks)) {
    for (const CostModel& model : kExtremeNetworks) {
      on_all_ranks([&, n = count](Link& link) {
        Scratch scratch;
        auto expected = rough_input(link.rank(), n);
        auto data = expected;
        const auto group = all_ranks(link);
        all_reduce(link, group, buffer_of(std::span(expected)), ReduceOp::sum, scratch, model);
        const Buffer all = buffer_of(std::span(data));
        reduce_to_parts(link, group, all, starts, ReduceOp::sum, scratch, model);
        gather_parts(link, group, all, starts, model);
        EXPECT_EQ(data, expected) << "rank " << link.rank();

        expected = rough_input(link.rank(), n);
        std::copy(expected.begin(), expected.end(), data.begin());
        all_reduce_in_order(link, group, buffer_of(std::span(expected)), ReduceOp::sum, scratch,
                            model);
        reduce_to_parts_in_order(link, group, all, starts, ReduceOp::sum, scratch);
        gather_parts(link, group, all, starts, model);
        EXPECT_EQ(data, expected) << "rank " << link.rank() << " in order";
      });
    }
  }
}

TEST_P(Schedules, BroadcastWorksFromEveryRoot) {
  using Spread = void (*)(Link&, const Subgroup&, Buffer, int);
  for (const Spread variant : {&broadcast_tree, &broadcast_chain, &broadcast_scatter}) {
    if (GetParam().ranks == 1) continue;
    for (int root = 0; root < GetParam().ranks; ++root) {
      on_all_ranks([&](Link& link) {
        auto data = input(link.rank());
        variant(link, all_ranks(link), buffer_of(std::span(data)), root);
        EXPECT_EQ(data, input(root)) << "rank " << link.rank() << ", root " << root;
      });
    }
  }
}

// Ranks are assigned to nodes in turn, so that no two neighbors share a node and nodes differ in
// size.
TEST_P(Schedules, BroadcastByNodeWorksFromEveryRoot) {
  for (const CostModel& model : kExtremeNetworks) {
    for (int root = 0; root < GetParam().ranks; ++root) {
      on_all_ranks([&](Link& link) {
        std::vector<std::string> keys;
        for (int r = 0; r < link.size(); ++r) keys.push_back(r % 3 == 1 ? "b" : "a");
        auto data = input(link.rank());
        node_broadcast(link, map_nodes(keys, link.rank()), buffer_of(std::span(data)), root, model);
        EXPECT_EQ(data, input(root)) << "rank " << link.rank() << ", root " << root;
      });
    }
  }
}

TEST_P(Schedules, NoRankPassesTheBarrierBeforeAllHaveEntered) {
  std::atomic<int> entered{0};
  on_all_ranks([&](Link& link) {
    std::this_thread::sleep_for(std::chrono::milliseconds(link.rank()));
    ++entered;
    barrier(link, all_ranks(link));
    EXPECT_EQ(entered.load(), GetParam().ranks);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Schedules,
                         testing::Values(Case{1, 5, 64}, Case{2, 0, 64}, Case{2, 1, 64},
                                         Case{2, 1000, 64}, Case{2, 9000, 65536}, Case{3, 2, 64},
                                         Case{3, 1000, 40}, Case{4, 1023, 8}, Case{5, 20000, 4096},
                                         Case{7, 100, 16}, Case{8, 4096, 1024}),
                         name_of);

// A schedule may run on a subset of the ranks, in any order, while the other ranks run other
// schedules.
TEST(Subgroups, RunSchedulesIndependently) {
  FailureState failures;
  auto transports = make_in_process_transports(5);
  std::vector<std::thread> threads;
  for (auto& transport : transports) {
    threads.emplace_back([&] {
      Link link(*transport, failures, {.segment_bytes = 16, .timeout = std::chrono::seconds(20)});
      link.begin(0, "test");
      const std::vector<std::vector<int>> teams{{4, 1, 2}, {3, 0}};
      for (const auto& ranks : teams) {
        const auto place = std::find(ranks.begin(), ranks.end(), link.rank()) - ranks.begin();
        if (place == static_cast<std::ptrdiff_t>(ranks.size())) continue;
        const Subgroup group{ranks, static_cast<int>(place)};
        Scratch scratch;
        for (const Variant variant : {&all_reduce_doubling, &all_reduce_halving, &all_reduce_ring,
                                      &all_reduce_chain, &all_reduce_gather_in_order}) {
          std::vector<float> data(100, static_cast<float>(link.rank()));
          variant(link, group, buffer_of(std::span(data)), ReduceOp::sum, scratch);
          EXPECT_EQ(data, std::vector<float>(100, ranks.size() == 3 ? 7.0F : 3.0F));
        }
        std::vector<float> data(100, static_cast<float>(link.rank()));
        broadcast_chain(link, group, buffer_of(std::span(data)), 1);
        EXPECT_EQ(data[99], static_cast<float>(ranks[1]));
        data.assign(100, static_cast<float>(link.rank()));
        broadcast_scatter(link, group, buffer_of(std::span(data)), 1);
        EXPECT_EQ(data[99], static_cast<float>(ranks[1]));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(EvenChunks, CoverEverythingAndDifferByAtMostOne) {
  EXPECT_EQ(even_starts(10, 4), (std::vector<std::size_t>{0, 3, 6, 8, 10}));
  EXPECT_EQ(even_starts(2, 4), (std::vector<std::size_t>{0, 1, 2, 2, 2}));
  EXPECT_EQ(even_starts(0, 2), (std::vector<std::size_t>{0, 0, 0}));
}

// Rounding depends on the order of additions. All ranks must still get bitwise equal results, so
// that the replicas do not drift apart.
TEST(AllReduceBits, AreEqualOnAllRanks) {
  for (const int ranks : {2, 3, 5, 6}) {
    for (const Variant variant : {&all_reduce_doubling, &all_reduce_halving, &all_reduce_ring,
                                  &all_reduce_chain, &all_reduce_gather_in_order}) {
      FailureState failures;
      auto transports = make_in_process_transports(ranks);
      std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
      std::vector<std::thread> threads;
      for (auto& transport : transports) {
        threads.emplace_back([&] {
          Link link(*transport, failures, {});
          link.begin(0, "test");
          Scratch scratch;
          std::vector<float> data(257);
          for (std::size_t i = 0; i < data.size(); ++i) {
            data[i] = 1.0F / static_cast<float>(1 + link.rank() * 7 + static_cast<int>(i));
          }
          variant(link, all_ranks(link), buffer_of(std::span(data)), ReduceOp::sum, scratch);
          results[static_cast<std::size_t>(link.rank())] = std::move(data);
        });
      }
      for (auto& thread : threads) thread.join();
      for (const auto& result : results) EXPECT_EQ(result, results[0]) << ranks << " ranks";
    }
  }
}

// Sums in rank order must be bitwise equal for every schedule.
TEST(AllReduceBits, InRankOrderEqualTheBitsOfOneProcess) {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 257;
  const auto part = [](int rank, std::size_t i) {
    return 1.0F / static_cast<float>(1 + rank * 7 + static_cast<int>(i));
  };
  std::vector<float> expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    for (int r = 0; r < kRanks; ++r) expected[i] = r == 0 ? part(0, i) : expected[i] + part(r, i);
  }
  for (const Variant variant : {&all_reduce_chain, &all_reduce_gather_in_order}) {
    FailureState failures;
    auto transports = make_in_process_transports(kRanks);
    std::vector<std::thread> threads;
    for (auto& transport : transports) {
      threads.emplace_back([&] {
        Link link(*transport, failures, {});
        link.begin(0, "test");
        Scratch scratch;
        std::vector<float> data(kCount);
        for (std::size_t i = 0; i < kCount; ++i) data[i] = part(link.rank(), i);
        variant(link, all_ranks(link), buffer_of(std::span(data)), ReduceOp::sum, scratch);
        EXPECT_EQ(data, expected);
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace ddp::comm::schedules
