// SPDX-License-Identifier: Apache-2.0
// Tests how rank 0 treats an error of NCCL that says that another process ended: a symptom, which
// must not hide the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "ddp_runtime/comm/failure/hub.h"
#include "tests/unit/comm/failure/channel_peers.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using test::Leader;
using test::next_of;
using test::quick;
using testing::StartsWith;

// NCCL's error on a neighbor of the rank that failed may come before the news of the failure.
class RemoteError : public testing::Test {
 protected:
  RemoteError() : leader(4, options()) {
    for (int rank = 1; rank < 4; ++rank) ranks.push_back(leader.join(rank, "node1"));
    // A heartbeat means that the hub has accepted the rank.
    for (auto& connection : ranks) EXPECT_TRUE(connection.await(test::kLong));
  }
  static ChannelOptions options() {
    auto options = quick();
    options.liveness.silence = 1h;
    return options;
  }
  void send(int rank, MessageKind kind, const std::string& text) {
    ranks[static_cast<std::size_t>(rank - 1)].send({kind, rank, text});
  }
  // Each rank answers when it is asked.
  void answer() {
    for (int rank = 1; rank < 4; ++rank) {
      Connection& connection = ranks[static_cast<std::size_t>(rank - 1)];
      while (const auto message = connection.await(test::kLong)) {
        if (message->kind == MessageKind::status_request) break;
      }
      send(rank, MessageKind::status, to_json(FlightRecorder().snapshot()).dump());
    }
  }
  Failure verdict() const {
    const auto verdict = leader.hub->verdict(30s);
    EXPECT_TRUE(verdict);
    return verdict.value_or(Failure{});
  }

  Leader leader;
  std::vector<Connection> ranks;  // from rank 1
};

TEST_F(RemoteError, DoesNotHideARankThatExits) {
  send(1, MessageKind::remote_error, "NCCL: remote process exited");
  answer();
  std::this_thread::sleep_for(50ms);
  ranks[1].close();
  EXPECT_EQ(verdict().rank, 2);
  EXPECT_THAT(verdict().text, StartsWith("rank 2 (node1, process 2) exited unexpectedly"));
}

TEST_F(RemoteError, DoesNotHideAnErrorOfAnotherRank) {
  send(1, MessageKind::remote_error, "NCCL: remote process exited");
  answer();
  std::this_thread::sleep_for(50ms);
  send(3, MessageKind::failure, "the disk is full");
  EXPECT_EQ(verdict().rank, 3);
  EXPECT_EQ(verdict().text, "the disk is full");
}

TEST_F(RemoteError, OfRankZeroDoesNotHideAnErrorOfAnotherRank) {
  leader.failures.fail({.rank = 0, .text = "NCCL: remote", .symptom = Symptom::remote_error});
  std::this_thread::sleep_for(50ms);
  send(3, MessageKind::failure, "the disk is full");
  EXPECT_EQ(verdict().rank, 3);
  EXPECT_EQ(verdict().text, "the disk is full");
}

TEST_F(RemoteError, DoesNotHideALongWait) {
  send(1, MessageKind::remote_error, "NCCL: remote process exited");
  std::this_thread::sleep_for(50ms);
  send(3, MessageKind::timeout, "rank 3 has waited 60 s for all_reduce #7");
  answer();
  EXPECT_EQ(verdict().rank, 3);
  EXPECT_THAT(verdict().text, StartsWith("rank 3 has waited 60 s for all_reduce #7; "));
}

TEST_F(RemoteError, WithoutAnyOtherErrorIsReported) {
  send(1, MessageKind::remote_error, "NCCL: remote process exited");
  answer();
  EXPECT_EQ(verdict().rank, 1);
  EXPECT_EQ(verdict().kind, FailureKind::network);
  EXPECT_THAT(verdict().text, StartsWith("NCCL: remote process exited; no rank exited"));
}

TEST_F(RemoteError, IsNotForgottenAfterASlowWaitOrAnotherRemoteError) {
  send(1, MessageKind::remote_error, "NCCL: remote process exited");
  std::this_thread::sleep_for(50ms);
  send(2, MessageKind::slow_wait, "rank 2 has waited 5 s for all_reduce #7");
  send(3, MessageKind::remote_error, "NCCL: another echo");
  answer();
  EXPECT_EQ(verdict().rank, 1);
  EXPECT_THAT(verdict().text, StartsWith("NCCL: remote process exited; no rank exited"));
}

TEST_F(RemoteError, HubThatLeavesStillReportsIt) {
  leader.failures.fail({.rank = 0, .text = "NCCL: remote", .symptom = Symptom::remote_error});
  answer();
  leader.hub.reset();
  const auto told = next_of(ranks[2]);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::failure);
  EXPECT_THAT(told->text, StartsWith("NCCL: remote; no rank exited"));
}

}  // namespace
}  // namespace ddp::comm
