// SPDX-License-Identifier: Apache-2.0
// Tests groups of some of the ranks beyond the contract of all groups: the plan, shared memory, and
// how errors in them name ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/group/group_name.h"
#include "ddp_runtime/comm/p2p/split_plan.h"
#include "ddp_runtime/comm/transport/point_to_point_channel.h"
#include "tests/unit/comm/failure/channel_peers.h"
#include "tests/unit/comm/ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;

std::int64_t sum_of_ones(Group& group) {
  return group.all_reduce_value<std::int64_t>(1, ReduceOp::sum);
}

TEST(SplitPlan, GroupsByColorAndOrdersByKeyAndThenByRank) {
  const std::vector<SplitRequest> requests{{1, 5}, {0, 0}, {1, -3}, {-1, 0}, {1, 5}, {0, 0}};
  EXPECT_THAT(members_of_part(requests, 0), ElementsAre(2, 0, 4));
  EXPECT_THAT(members_of_part(requests, 4), ElementsAre(2, 0, 4));
  EXPECT_THAT(members_of_part(requests, 5), ElementsAre(1, 5));
  EXPECT_THAT(members_of_part(requests, 3), IsEmpty());
}

TEST(SplitPlan, RefusesLongNames) {
  const std::vector<SplitRequest> fine{{0, 0, std::string(kMaxGroupName, 'x')}};
  EXPECT_NO_THROW(require_short_names(fine));
  const std::vector<SplitRequest> requests{{}, {0, 0, std::string(kMaxGroupName + 1, 'x')}};
  EXPECT_THAT(error_of([&] { require_short_names(requests); }),
              AllOf(HasSubstr("from its rank 1, has 49 bytes; use at most 48")));
}

TEST(GroupName, ListsRanks) {
  const auto text = [](const std::vector<int>& ranks) { return describe_ranks(ranks); };
  EXPECT_EQ(text({3}), "rank 3");
  EXPECT_EQ(text({3, 1}), "ranks 3 and 1");
  EXPECT_EQ(text({0, 1, 2}), "ranks 0, 1 and 2");
  EXPECT_EQ(text({4, 5, 6, 7}), "ranks 4 to 7");
  EXPECT_EQ(text({0, 8, 16, 24}), "ranks 0 to 24 in steps of 8");
  EXPECT_EQ(text({5, 4, 3, 2}), "ranks 5, 4, 3 and 2");
  EXPECT_EQ(text({0, 1, 2, 3, 4, 5, 6, 8}), "ranks 0, 1, 2, 3, 4, 5, 6 and 8");
  EXPECT_EQ(text({0, 1, 2, 3, 4, 5, 6, 8, 9, 11}), "ranks 0, 1, 2, 3, 4, 5, 6, 8 and 2 more");
}

TEST(GroupName, OfDifferentRanksDiffer) {
  const std::vector<int> a{0, 1, 2, 3, 4, 5, 6, 8, 9, 11};
  const std::vector<int> b{0, 1, 2, 3, 4, 5, 6, 8, 9, 12};
  EXPECT_EQ(name_of_part("dp", a).after, name_of_part("dp", b).after);
  EXPECT_NE(name_of_part("dp", a).channel, name_of_part("dp", b).channel);
  const std::vector<int> two{2, 3};
  EXPECT_EQ(name_of_part("stage 1", two).after, " of group 'stage 1' (ranks 2 and 3)");
  EXPECT_EQ(name_of_part("", two).after, " of the group of ranks 2 and 3");
  EXPECT_EQ(name_of_part("", two, 2).after, " of the group no. 2 of ranks 2 and 3");
  const GroupName norm = name_of_part("dp", two, 3).of_channel("norm");
  EXPECT_EQ(norm.channel, "group 'dp' no. 3 (ranks 2 and 3), norm");
  EXPECT_EQ(norm.before + "barrier #0" + norm.after,
            "norm barrier #0 of group 'dp' no. 3 (ranks 2 and 3)");
}

TEST(Split, PartsHavePointToPointChannels) {
  test::run_ranks(6, [](Group& world) {
    Group& part = *world.split(world.rank() % 2, 0, "part");
    PointToPointChannel& line = part.point_to_point_channel("line");
    EXPECT_EQ(line.transport->size(), 3);
    Link link(*line.transport, *line.failures, line.limits);
    link.begin(3, "test");
    std::int64_t mine = world.rank();
    std::int64_t theirs = -1;
    const int next = (part.rank() + 1) % 3;
    const int previous = (part.rank() + 2) % 3;
    link.exchange(next, buffer_of(mine).span(), previous, buffer_of(theirs).span());
    EXPECT_EQ(theirs, part.world_rank(previous));
  });
}

// The ranks of a part share memory if they are on one node, wherever the others are.
TEST(Split, PartsShareMemoryWithinNodes) {
  const auto node_of = [](int rank) { return rank / 4; };
  test::run_ranks(
      8,
      [](Group& world) {
        const int color = world.rank() % 2;  // two ranks of each part on each node
        Group& part = *world.split(color, 0, "part");
        const auto memory = part.allocate(4096);
        auto* values = reinterpret_cast<float*>(memory.get());
        for (int round = 0; round < 3; ++round) {
          std::fill(values, values + 1024, static_cast<float>(world.rank()));
          part.all_reduce(buffer_of(std::span(values, 1024)), ReduceOp::sum).wait();
          EXPECT_THAT(std::span(values, 1024), Each(color == 0 ? 12.0F : 16.0F));
        }
      },
      {}, node_of);
}

TEST(Split, AddsInTheOrderOfThePart) {
  GroupOptions options;
  options.in_rank_order = true;
  test::run_ranks(
      3,
      [](Group& world) {
        Group& part = *world.split(0, -world.rank());
        // (1e8 + 1) - 1e8 in float32 is 0 in this order, and 1 if the large numbers are added
        // first.
        float value = world.rank() == 2 ? 1e8F : world.rank() == 1 ? 1.0F : -1e8F;
        part.all_reduce(buffer_of(value), ReduceOp::sum).wait();
        EXPECT_EQ(value, 0.0F);
        value = world.rank() == 2 ? 1.0F : world.rank() == 1 ? 1e8F : -1e8F;
        world.all_reduce(buffer_of(value), ReduceOp::sum).wait();
        EXPECT_EQ(value, 1.0F);
      },
      options);
}

// In these tests ranks 1 and 3 are the ranks 0 and 1 of the part.
GroupOptions quick_timeout() {
  return {.limits = {.timeout = 100ms}};
}

TEST(Split, WaitReportNamesTheRanksOfTheJobAndTheGroup) {
  const auto error = [](const std::function<void(Group & part)>& wait) {
    return error_of([&] {
      test::run_ranks(
          4,
          [&](Group& world) {
            Group* const part = world.split(world.rank() % 2 == 1 ? 0 : -1, 0, "odd");
            if (world.rank() == 1) wait(*part);
            if (world.rank() != 1) std::this_thread::sleep_for(500ms);
          },
          quick_timeout());
    });
  };
  float value = 0;
  EXPECT_THAT(error([](Group& part) { part.barrier("end").wait(); }),
              ContainsRegex("^rank 1 waited .* in barrier #0 \\(end\\) of group 'odd' \\(ranks 1 "
                            "and 3\\) for rank 3$"));
  EXPECT_THAT(error([&](Group& part) { part.receive(buffer_of(value), 1, "x").wait(); }),
              ContainsRegex("^rank 1 waited .* in receive \\(x\\) of group 'odd' \\(ranks 1 and "
                            "3\\) for rank 3$"));
}

TEST(Split, WrongLengthNamesTheRanksOfTheJob) {
  const auto text = error_of([] {
    test::run_ranks(4,
                    [](Group& world) {
                      Group& part = *world.split(world.rank() % 2);
                      if (world.rank() % 2 == 0) return;
                      std::vector<float> data(world.rank() == 1 ? 10 : 12);
                      part.all_reduce(buffer_of(std::span(data)), ReduceOp::sum).wait();
                    },
                    {.limits = {.timeout = 5s}});
  });
  EXPECT_THAT(text, ContainsRegex("rank (1 expected a message of 40 bytes from rank 3|3 expected a "
                                  "message of 48 bytes from rank 1)"));
}

TEST(Split, TakesTheNameOfItsFirstRank) {
  const auto text = error_of([] {
    test::run_ranks(
        3,
        [](Group& world) {
          Group& part = *world.split(0, -world.rank(), std::to_string(world.rank()));
          if (world.rank() != 0) part.barrier().wait();
          if (world.rank() == 0) std::this_thread::sleep_for(500ms);
        },
        quick_timeout());
  });
  EXPECT_THAT(text, HasSubstr("of group '2' (ranks 2, 1 and 0)"));
}

TEST(Split, RefusesTooManyGroups) {
  test::run_ranks(2, [](Group& world) {
    const auto text = error_of([&] {
      for (int i = 0; i < 1000; ++i) EXPECT_EQ(sum_of_ones(*world.split(0, 0, "step")), 2);
    });
    EXPECT_THAT(text, AllOf(HasSubstr("in 128 groups"), HasSubstr("group 'step' no. 129")));
  });
}

// ---- diagnosis over real error channels

void with_channels(int ranks, std::chrono::milliseconds timeout,
                   const std::function<void(test::ChannelRank)>& body) {
  GroupOptions options;
  options.limits.timeout = timeout;
  test::with_channels(make_in_process_transports(ranks), options, {}, body);
}

TEST(SplitDiagnosis, NamesTheRankThatDoesNotJoin) {
  with_channels(5, 300ms, [](test::ChannelRank rank) {
    Group* const part = rank.group.split(rank.group.rank() >= 2 ? 0 : -1, 0, "stage 1");
    rank.group.flight_recorder().set_phase("step 5: forward");
    if (part != nullptr && rank.group.rank() != 3) {
      EXPECT_THROW(part->barrier("end").wait(), RuntimeError);
    }
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 3);
    EXPECT_THAT(verdict->text,
                ContainsRegex("^rank 3 \\(.*\\) did not join barrier #0 \\(end\\) of group 'stage "
                              "1' \\(ranks 2, 3 and 4\\): it last completed .* and has been at "
                              "'step 5: forward' for .*; rank [24] waited 0 s in barrier #0 "
                              "\\(end\\) of group 'stage 1' \\(ranks 2, 3 and 4\\) for rank"));
  });
}

TEST(SplitDiagnosis, NamesTheRankThatMakesAnotherGroupWaitToo) {
  // Rank 0 waits for rank 1 in the left group, and rank 1 for rank 2 in the right one.
  with_channels(3, 300ms, [](test::ChannelRank rank) {
    const int me = rank.group.rank();
    Group* const left = rank.group.split(me < 2 ? 0 : -1, 0, "left");
    Group* const right = rank.group.split(me > 0 ? 0 : -1, 0, "right");
    rank.group.flight_recorder().set_phase("data");
    if (me == 0) {
      EXPECT_THROW(left->barrier().wait(), RuntimeError);
    }
    if (me == 1) {
      EXPECT_THROW(right->barrier().wait(), RuntimeError);
    }
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 2);
    EXPECT_THAT(
        verdict->text,
        ContainsRegex("^rank 2 \\(.*\\) did not join barrier #0 of group 'right' \\(ranks 1 "
                      "and 2\\): .*'data'"));
  });
}

TEST(SplitDiagnosis, NamesTheGroupsThatWaitForEachOther) {
  // Each rank waits in a group with the next one.
  with_channels(3, 300ms, [](test::ChannelRank rank) {
    const int me = rank.group.rank();
    std::vector<Group*> edges;
    for (int edge = 0; edge < 3; ++edge) {
      const bool in = me == edge || me == (edge + 1) % 3;
      edges.push_back(rank.group.split(in ? 0 : -1, 0, "edge " + std::to_string(edge)));
    }
    EXPECT_THROW(edges[static_cast<std::size_t>(me)]->barrier().wait(), RuntimeError);
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_THAT(verdict->text,
                ContainsRegex(
                    "^ranks wait for each other in different groups: rank 0 \\(.*\\) waits in "
                    "barrier #0 of group 'edge 0' \\(ranks 0 and 1\\) for rank 1, rank 1 .* waits "
                    "in barrier #0 of group 'edge 1' \\(ranks 1 and 2\\) for rank 2, rank 2 .* "
                    "waits in barrier #0 of group 'edge 2' \\(ranks 0 and 2\\) for rank 0; "));
  });
}

TEST(SplitDiagnosis, FindsDifferentCallsInAPart) {
  GroupOptions options;
  options.limits.timeout = 1h;
  options.limits.report_after = 1s;  // in which all ranks call
  std::barrier all(6);
  test::with_channels(make_in_process_transports(6), options, {}, [&](test::ChannelRank rank) {
    const int me = rank.group.rank();
    Group& part = *rank.group.split(me % 2, 0, me % 2 == 0 ? "even" : "odd");
    // The parts differ rightly; of the odd ranks, rank 3 differs wrongly.
    float value = 1;
    Work work;
    if (me % 2 == 0) work = part.barrier("lost count");
    all.arrive_and_wait();
    if (me == 3) work = part.barrier("lost count");
    if (me == 1 || me == 5) work = part.all_reduce(buffer_of(value), ReduceOp::sum);
    if (me % 2 == 1) {
      EXPECT_THROW(work.wait(), RuntimeError);
    }
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 3);
    EXPECT_THAT(verdict->text,
                AllOf(HasSubstr("rank 3 ("), HasSubstr("of group 'odd' (ranks 1, 3 and 5)"),
                      HasSubstr("ranks 1 and 5 called all_reduce #0"), Not(HasSubstr("even"))));
  });
}

}  // namespace
}  // namespace ddp::comm
