// SPDX-License-Identifier: Apache-2.0
// Tests the ends of the other ranks with a rank 0 that the test simulates, over TCP on this
// machine.
#include "ddp_runtime/comm/failure/spoke.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "tests/unit/comm/failure/channel_peers.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using test::cut;
using test::eventually;
using test::kLong;
using test::next_of;
using test::quick;
using testing::AllOf;
using testing::HasSubstr;

class SpokeTest : public testing::Test, protected test::SpokeAndLeader {
 protected:
  // Rank 0 is lost when it is silent for this long.
  static ChannelOptions silent_after(std::chrono::milliseconds silence) {
    auto options = quick();
    options.liveness.silence = silence;
    return options;
  }
  static void expect_next(Connection& connection, MessageKind kind, const std::string& text) {
    const auto told = next_of(connection);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->kind, kind);
    EXPECT_EQ(told->text, text);
  }
};

TEST_F(SpokeTest, ReconnectsAndThenReportsItsFailure) {
  cut(connection.fd());
  start(silent_after(1h));
  failures.fail({.rank = 1, .text = "the disk is full"});  // sent on the silent connection
  Connection fresh = accept_again();
  expect_next(fresh, MessageKind::failure, "the disk is full");
}

// Rank 0's old address no longer answers, as if its network were down.
TEST_F(SpokeTest, FindsRankZeroAgainAtAnotherAddress) {
  Listener elsewhere = listen_anywhere();
  cut(connection.fd());
  leader.listener.socket.close();
  start(silent_after(1h), {{"127.0.0.1", elsewhere.port}});
  leader.listener = std::move(elsewhere);
  Connection fresh = accept_again();
  EXPECT_TRUE(fresh.await(kLong)) << "a heartbeat";
  EXPECT_FALSE(failures.failed());
}

TEST_F(SpokeTest, ReportsTheProgramOnRankZerosPort) {
  cut(connection.fd());
  start(silent_after(2s));
  Connection fresh = leader.accept();
  fresh.await(kLong);
  const std::string page = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_GT(::send(fresh.fd(), page.data(), page.size(), MSG_NOSIGNAL), 0);
  failures.begin_stall();
  ASSERT_TRUE(eventually([&] { return failures.failed(); }));
  EXPECT_EQ(failures.failure()->rank, 0);
  EXPECT_THAT(failures.failure()->text, AllOf(HasSubstr("node1, process 9) has been silent"),
                                              HasSubstr("; the program at 127.0.0.1, port "),
                                              HasSubstr(" is not rank 0 of this job")));
}

TEST_F(SpokeTest, NamesASilentRankZeroAndTellsItWhenTheDataPathStalls) {
  start();
  std::this_thread::sleep_for(600ms);
  EXPECT_FALSE(failures.failed()) << "no rank waits";
  failures.begin_stall();
  ASSERT_TRUE(eventually([&] { return failures.failed(); }));
  EXPECT_EQ(failures.failure()->rank, 0);
  EXPECT_THAT(failures.failure()->text, HasSubstr("node1, process 9) has been silent"));
  const auto told = next_of(connection);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::hub_lost);
  EXPECT_EQ(told->rank, 1) << "its machine answers";
  EXPECT_EQ(told->text, failures.failure()->text);
}

TEST_F(SpokeTest, NamesARankZeroThatExits) {
  start(ChannelOptions());
  connection.close();
  leader.listener.socket.close();
  ASSERT_TRUE(eventually([&] { return failures.failed(); }));
  EXPECT_EQ(failures.failure()->rank, 0);
  EXPECT_THAT(failures.failure()->text, HasSubstr("node1, process 9"));
}

// Its machine is gone, so that no connection closes.
TEST_F(SpokeTest, FindsALostRankZeroAfterAnEcho) {
  cut(connection.fd());
  start();
  failures.fail({.rank = 1, .text = "NCCL: remote", .symptom = Symptom::remote_error});
  const auto verdict = spoke->verdict(30s);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 0);
  EXPECT_EQ(verdict->kind, FailureKind::unreachable);
}

TEST_F(SpokeTest, ReportsRemoteErrorsAsSymptoms) {
  start(ChannelOptions());
  failures.fail({.rank = 1, .text = "NCCL: remote", .symptom = Symptom::remote_error});
  expect_next(connection, MessageKind::remote_error, "NCCL: remote");
  connection.close();  // rank 0 is the one that exited
  const auto verdict = spoke->verdict(30s);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 0);
  EXPECT_THAT(verdict->text, HasSubstr("exited unexpectedly"));
}

// If the rank sent a goodbye instead of the failure, the others would wait for a rank that is gone.
// The test is repeated to reach the moment between the thread's last check and its exit.
TEST(Spoke, RankThatFailsAndExitsImmediatelyReportsWhy) {
  for (int i = 0; i < 300; ++i) {
    test::SpokeAndLeader ends;
    ends.start(ChannelOptions());
    std::this_thread::sleep_for(std::chrono::microseconds(i));
    ends.failures.fail({.rank = 1, .text = "the disk is full"});
    ends.spoke.reset();
    const auto told = next_of(ends.connection);
    ASSERT_TRUE(told);
    ASSERT_EQ(told->kind, MessageKind::failure) << "round " << i;
  }
}

TEST(Connection, OnlyFinOrResetProvesThatTheProcessExited) {
  for (const int error : {ECONNRESET, EPIPE}) EXPECT_EQ(state_after(error), StreamState::ended);
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EHOSTDOWN}) {
    EXPECT_EQ(state_after(error), StreamState::broken) << error;
  }
}

// Rank 0 reports a failure to one rank after the other. A rank that does not read must not delay
// the report to the next one.
TEST(Connection, SendDoesNotWaitForAPeerThatDoesNotRead) {
  test::SpokeAndLeader ends;
  const Message message{MessageKind::failure, 1, std::string(kMaxText, 'x')};
  for (int i = 0; i < 10'000 && !ends.outgoing.unsent(); ++i) ends.outgoing.send(message);
  ASSERT_TRUE(ends.outgoing.unsent());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ends.outgoing.send(message));  // returns immediately
}

}  // namespace
}  // namespace ddp::comm
