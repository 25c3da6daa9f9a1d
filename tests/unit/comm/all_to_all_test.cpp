// SPDX-License-Identifier: Apache-2.0
// Tests all_to_all, and that every operation keeps its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ddp_runtime/comm/in_process/run_ranks.h"
#include "ddp_runtime/comm/parts.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

// The number of elements that rank `from` sends to rank `to`; some are 0.
std::size_t size_of_part(int from, int to) {
  return static_cast<std::size_t>((3 * from + 5 * to) % 7 == 0 ? 0 : 1 + 10 * from + to);
}
std::int32_t element_of_part(int from, int to, std::size_t i) {
  return 10000 * from + 100 * to + static_cast<std::int32_t>(i);
}

struct Exchanged {
  PartSizes sizes;
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> expected;
};

Exchanged exchange_of(int rank, int ranks, const std::function<std::size_t(int, int)>& size) {
  Exchanged e;
  for (int peer = 0; peer < ranks; ++peer) {
    e.sizes.input.push_back(size(rank, peer));
    e.sizes.output.push_back(size(peer, rank));
    for (std::size_t i = 0; i < size(rank, peer); ++i) {
      e.input.push_back(element_of_part(rank, peer, i));
    }
    for (std::size_t i = 0; i < size(peer, rank); ++i) {
      e.expected.push_back(element_of_part(peer, rank, i));
    }
  }
  return e;
}

TEST(AllToAll, ExchangesPartsOfAnySizes) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const std::size_t segment : {8U, 60U << 10}) {
      run_ranks(ranks,
                [&](Group& group) {
                  Exchanged unequal = exchange_of(group.rank(), ranks, size_of_part);
                  std::vector<std::int32_t> output(unequal.expected.size(), -1);
                  group
                      .all_to_all(buffer_of(std::span(unequal.input)), buffer_of(std::span(output)),
                                  unequal.sizes)
                      .wait();
                  EXPECT_EQ(output, unequal.expected);

                  Exchanged equal = exchange_of(group.rank(), ranks, [](int, int) { return 5; });
                  output.assign(equal.expected.size(), -1);
                  group.all_to_all(buffer_of(std::span(equal.input)), buffer_of(std::span(output)))
                      .wait();
                  EXPECT_EQ(output, equal.expected);
                },
                {.limits = {.segment_bytes = segment, .timeout = 30s}});
    }
  }
}

TEST(AllToAll, RefusesSizesThatDoNotFit) {
  std::vector<float> values(6);
  std::vector<double> others(6);
  const Buffer six = buffer_of(std::span(values));
  const auto error = [&](const Buffer& input, const Buffer& output, const PartSizes& sizes) {
    return error_of([&] { find_parts(input, output, sizes, 0, 2); });
  };
  EXPECT_EQ(error(six, six, {}), "");
  EXPECT_EQ(error(six, six, {{2, 4}, {2, 4}}), "");
  EXPECT_EQ(error(six, six.slice(0, 2), {{2, 4}, {2, 0}}), "");
  EXPECT_THAT(error(six, buffer_of(std::span(others)), {}), HasSubstr("one type"));
  EXPECT_THAT(error(six.slice(0, 5), six.slice(0, 5), {}), HasSubstr("a multiple of size()"));
  EXPECT_THAT(error(six, six, {{6}, {3, 3}}), HasSubstr("one part per rank"));
  EXPECT_THAT(error(six, six, {{3, 2}, {3, 3}}), HasSubstr("add up"));
  EXPECT_THAT(error(six, six, {{2, 4}, {3, 3}}), HasSubstr("a rank for itself"));
}

TEST(AllToAll, NamesTheRankWithAnotherSize) {
  const auto text = error_of([] {
    run_ranks(
        3,
        [](Group& group) {
          // Rank 1 sends rank 2 more than it expects.
          const auto size = [&](int from, int to) {
            return group.rank() == 1 && from == 1 && to == 2 ? std::size_t{9} : std::size_t{4};
          };
          Exchanged e = exchange_of(group.rank(), 3, size);
          std::vector<std::int32_t> output(e.expected.size());
          group.all_to_all(buffer_of(std::span(e.input)), buffer_of(std::span(output)), e.sizes)
              .wait();
        },
        {.limits = {.timeout = 5s}});
  });
  EXPECT_THAT(text, ContainsRegex("rank 2 expected a message of 16 bytes from rank 1"));
}

// ---- every operation holds `keep` until it is done, and not longer

TEST(Keep, OfEveryOperationIsHeldUntilItIsDone) {
  run_ranks(2, [](Group& group) {
    const int peer = 1 - group.rank();
    std::vector<float> two(2, 1);
    std::vector<float> four(4, 1);
    const Buffer small = buffer_of(std::span(two));
    const Buffer large = buffer_of(std::span(four));
    using Keep = std::shared_ptr<const void>;
    const std::vector<std::function<Work(Keep)>> operations{
        [&](Keep k) { return group.all_reduce(large, ReduceOp::sum, {}, std::move(k)); },
        [&](Keep k) { return group.reduce_scatter(large, small, ReduceOp::sum, {}, std::move(k)); },
        [&](Keep k) { return group.all_gather(small, large, {}, std::move(k)); },
        [&](Keep k) { return group.broadcast(large, 1, {}, std::move(k)); },
        [&](Keep k) { return group.all_to_all(small, large.slice(0, 2), {}, {}, std::move(k)); },
        [&](Keep k) {
          return group.rank() == 0 ? group.receive(large, peer, {}, std::move(k))
                                   : group.send(large, peer, {}, std::move(k));
        }};
    for (std::size_t i = 0; i < operations.size(); ++i) {
      for (int round = 0; round < 200; ++round) {
        auto keep = std::make_shared<int>(0);
        const std::weak_ptr<int> held = keep;
        const Work work = operations[i](std::move(keep));
        work.wait();
        EXPECT_TRUE(held.expired()) << "operation " << i;
      }
      // The peer has not called, so it cannot be done.
      group.barrier().wait();
      if (group.rank() == 0) {
        auto keep = std::make_shared<int>(0);
        const std::weak_ptr<int> held = keep;
        const Work work = operations[i](std::move(keep));
        EXPECT_FALSE(held.expired()) << "operation " << i;
        std::int64_t go = 1;
        group.send(buffer_of(go), peer, "go").wait();
        work.wait();
      } else {
        std::int64_t go = 0;
        group.receive(buffer_of(go), peer, "go").wait();
        operations[i](nullptr).wait();
      }
    }
  });
}

}  // namespace
}  // namespace ddp::comm
