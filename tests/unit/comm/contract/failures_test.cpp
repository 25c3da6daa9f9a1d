// SPDX-License-Identifier: Apache-2.0
// What ends when a rank fails or waits for too long.
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/contract/group_contract.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

class GroupFailures : public SplitContract {};

INSTANTIATE_TEST_SUITE_P(Of, GroupFailures, testing::ValuesIn(kAllKinds), name_of_kind);

TEST_P(GroupFailures, EndTheWaitsOfAllRanks) {
  struct Place {
    const char* name;
    std::function<void(GpuRank, Group& part, const Numbers<>&)> wait;
  };
  const std::vector<Place> places{
      {"a collective",
       [](GpuRank r, Group&, const Numbers<>& data) {
         const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum, {}, data.memory);
         work.wait();
         work.wait_host();
       }},
      {"a barrier", [](GpuRank r, Group&, const Numbers<>&) { r.group.barrier().wait(); }},
      {"a split", [](GpuRank r, Group&, const Numbers<>&) { r.group.split(0); }},
      {"a channel",
       [](GpuRank r, Group&, const Numbers<>& data) {
         r.group.channel("norm")
             .all_reduce(data.buffer, ReduceOp::sum, {}, data.memory)
             .wait_host();
       }},
      {"a message",
       [](GpuRank r, Group&, const Numbers<>& data) {
         r.group.receive(data.buffer, 2, {}, data.memory).wait_host();
       }},
      // Rank 2 is in the part of rank 0. Ranks 1 and 3 wait for each other.
      {"a part", [](GpuRank, Group& part, const Numbers<>&) {
         for (;;) part.barrier().wait();
       }}};
  for (const auto& place : places) {
    std::atomic<int> told{0};
    const auto errors = errors_of(4, [&](GpuRank r) {
      try {
        Group& part = *r.group.split(r.rank % 2);
        r.group.channel("norm");
        const Numbers data(r, 4);
        r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
        if (r.rank == 2) throw std::runtime_error("the disk is full");
        place.wait(r, part, data);
      } catch (const PeerFailure& failure) {
        EXPECT_EQ(failure.rank(), 2);
        EXPECT_STREQ(failure.what(), "the disk is full");
        ++told;
        throw;
      }
    });
    EXPECT_THAT(errors, Each("the disk is full")) << place.name;
    EXPECT_EQ(told, 3) << place.name;
  }
  EXPECT_EQ(fake::page_locked_bytes(), 0U);
}

TEST_P(GroupFailures, EndQueuedCollectivesAndMessages) {
  std::atomic<bool> called{false};
  const auto errors = errors_of(2, [&](GpuRank r) {
    const Numbers data(r, 1000);
    const Numbers other(r, 4);
    const Work message = r.group.receive(other.buffer, 1 - r.rank, {}, other.memory);
    std::vector<Work> works;
    for (int i = 0; i < 30 && r.rank == 0; ++i) {
      works.push_back(r.group.all_reduce(data.buffer, ReduceOp::sum, {}, data.memory));
    }
    if (r.rank == 0) called = true;
    while (!called) std::this_thread::sleep_for(1ms);
    if (r.rank == 1) throw std::runtime_error("the disk is full");
    EXPECT_EQ(error_of([&] { works.front().wait_host(); }), "the disk is full");
    for (const auto& work : works) EXPECT_THROW(work.wait_host(), PeerFailure);
    EXPECT_THROW(message.wait_host(), PeerFailure);
    EXPECT_TRUE(works.back().done());
  });
  EXPECT_THAT(errors, ElementsAre("", "the disk is full"));
}

// The group holds the memory of the collectives that rank 1 leaves behind.
TEST_P(GroupFailures, MayDestroyTheGroupDuringItsCollectives) {
  const auto errors = errors_of(3, [](GpuRank r) {
    const Numbers data(r, 50000);
    data.fill(1);
    for (int i = 0; i < 30; ++i) {
      r.group.all_reduce(data.buffer, ReduceOp::sum, {}, data.memory);
      if (r.rank == 1 && i == 20) throw std::runtime_error("the disk is full");
    }
    r.group.barrier().wait();
  });
  EXPECT_THAT(errors, Each("the disk is full"));
}

class GroupTimeouts : public SplitContract {};

INSTANTIATE_TEST_SUITE_P(Of, GroupTimeouts,
                         testing::Values(kinds_of(Way::hosts)[0], kinds_of(Way::nccl)[0],
                                         kinds_of(Way::staged)[0]),
                         name_of_kind);

// Rank 3 is well, but does not call.
TEST_P(GroupTimeouts, NameTheCallItsLabelItsGroupAndTheRanksOfTheJob) {
  kind.hosts.limits.timeout = 300ms;
  const auto errors = errors_of(4, [](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2, 0, r.rank % 2 == 1 ? "odd" : "even");
    const Numbers data(r, 100);
    data.fill(1);
    if (r.rank == 1) {
      part.all_reduce(data.buffer, ReduceOp::sum, "values", data.memory).wait_host();
    }
    while (!r.failures.failed()) std::this_thread::sleep_for(1ms);
    r.failures.throw_if_failed();
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1 "), HasSubstr(" waited "),
                               HasSubstr("all_reduce #0 (values) of group 'odd' (ranks 1 and 3)")));
  EXPECT_THAT(errors, Each(errors[1]));
}

}  // namespace
}  // namespace ddp::comm::test
