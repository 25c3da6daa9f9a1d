// SPDX-License-Identifier: Apache-2.0
// Tests rank 0's end with peers that the test simulates, over TCP on this machine. Timeouts that
// must expire are short, and no test requires an event within a time limit.
#include "ddp_runtime/comm/failure/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor_limit.h"
#include "tests/unit/comm/failure/channel_peers.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using test::cut;
using test::eventually;
using test::Leader;
using test::next_of;
using test::quick;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The record of a failure.
class HubRecord : public testing::Test {
 protected:
  HubRecord() { options.dump = (directory_.path() / "record.json").string(); }
  nlohmann::json read_record() const { return nlohmann::json::parse(std::ifstream(options.dump)); }

  ChannelOptions options = quick();

 private:
  ddp::test::TemporaryDirectory directory_;
};

TEST(Hub, StoppedRankIsNamedAndItsGoodbyeIsNotAwaited) {
  auto options = quick();
  options.liveness.silence = 2s;  // longer than the other rank is ever silent
  options.liveness.reconnect = 1s;
  Leader leader(3, options);
  Connection stopped = leader.join(1, "node1");
  Connection well = leader.join(2, "node2");
  std::atomic<bool> over = false;
  std::thread heart([&] {
    while (!over && well.send({MessageKind::alive, 0, {}})) std::this_thread::sleep_for(5ms);
  });
  leader.failures.begin_stall();
  leader.failures.report_slow_wait("rank 0 waited 5 s in barrier #3 for rank 1");
  const auto verdict = leader.hub->verdict(120s);
  over = true;
  heart.join();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_EQ(verdict->kind, FailureKind::stopped);
  EXPECT_THAT(
      verdict->text,
      AllOf(StartsWith("rank 1 (node1, process 1) has been silent for 2 s, but the machine "
                       "answers: it is stopped"),
            HasSubstr("; rank 0 waited 5 s in barrier #3 for rank 1"), Not(HasSubstr("node2"))));
  well.send({MessageKind::goodbye, 2, {}});
  EXPECT_FALSE(leader.hub->wait_for_peer_exit(1h)) << "rank 1 may still be running";
}

TEST_F(HubRecord, VanishedMachineIsNamedWithAllItsRanks) {
  {
    Leader leader(3, options);
    std::vector<Connection> ranks;
    for (const int rank : {1, 2}) ranks.push_back(leader.join(rank, "node1"));
    for (const auto& rank : ranks) cut(rank.fd());
    std::this_thread::sleep_for(
        2s);  // time for heartbeats that are not acknowledged, on a busy machine, too
    leader.failures.begin_stall();
    const auto verdict = leader.hub->verdict(120s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, FailureKind::unreachable);
    EXPECT_THAT(verdict->text, StartsWith("ranks 1 and 2 on node1 have been silent for 0.2 s, and "
                                          "the machine does not answer"));
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(options.dump); }));
    leader.hub.reset();
  }
  const auto record = read_record();
  EXPECT_EQ(record.at("kind"), "unreachable");
  EXPECT_EQ(record.at("node"), "node1");
  ASSERT_EQ(record.at("lost").size(), 2U);
  EXPECT_EQ(record.at("lost")[1].at("rank"), 2);
  EXPECT_EQ(record.at("lost")[1].at("node"), "node1");
  EXPECT_EQ(record.at("lost")[1].at("kind"), "unreachable");
}

TEST(Hub, RanksThatDieTogetherAreReportedTogether) {
  auto options = quick();
  options.liveness.silence = 1h;
  Leader leader(4, options);
  Connection one = leader.join(1, "node1");
  Connection two = leader.join(2, "node1");
  Connection three = leader.join(3, "node2");
  one.close();
  std::this_thread::sleep_for(20ms);  // the kernel closes the connections one after the other
  two.close();
  const auto told = next_of(three);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::loss);
  EXPECT_THAT(told->text, StartsWith("ranks 1 and 2 on node1 exited unexpectedly: they were"));
}

TEST(Hub, RankMayReconnectAndGetsMissedFailures) {
  auto options = quick();
  options.liveness.silence = 1h;
  Leader leader(3, options);
  Connection first = leader.join(1, "node1");
  Connection other = leader.join(2, "node2");
  cut(first.fd());
  // The port is closed while all ranks are healthy, and reopened when one of them is silent.
  std::optional<Connection> again;
  ASSERT_TRUE(eventually([&] {
    again = test::call(leader.port, 1, "node1, process 1");
    return again.has_value();
  }));
  first.close();
  other.send({MessageKind::failure, 2, "the disk is full"});
  const auto told = next_of(*again);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::failure);
  EXPECT_EQ(told->text, "the disk is full");
}

TEST(Hub, OnlyTheSameProcessMayReconnect) {
  Leader leader(3);
  Connection one = leader.join(1, "node1");
  // The twin may pass the handshake before the hub hears the first process again, but it does not
  // join.
  auto twin = test::call(leader.port, 1, "node2, process 77");
  EXPECT_FALSE(twin && twin->await(120s));
  for (const int rank : {0, -1, 3, 1000000}) {
    EXPECT_FALSE(test::call(leader.port, rank, "node2, process 77")) << rank;
  }
  EXPECT_FALSE(leader.failures.failed());
}

TEST(Hub, SilentConnectionsDoNotBlockRanks) {
  Leader leader(2);
  std::vector<Connection> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(leader.knock());
  Connection one = leader.join(1);
  for (auto& stranger : strangers) {
    EXPECT_FALSE(stranger.await(120s));
    EXPECT_EQ(stranger.state(), StreamState::ended);
  }
  EXPECT_TRUE(eventually([&] { return !Connection::open({"127.0.0.1"}, leader.port, 60s); }))
      << "all ranks have joined: the port is closed";
  EXPECT_FALSE(leader.failures.failed());
}

TEST_F(HubRecord, InvalidUtf8ReachesAllRanksAndTheRecord) {
  {
    Leader leader(2, options);
    Connection one = leader.join(1);
    one.send({MessageKind::failure, 1, "cannot open /tmp/text\xff\xfe.txt"});
    const auto told = next_of(one);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->text, "cannot open /tmp/text\xff\xfe.txt");
    leader.hub.reset();
  }
  EXPECT_THAT(read_record().at("text").get<std::string>(), HasSubstr("cannot open /tmp/text"));
}

// The caller ends the job when no other rank is left, and the job's end may kill this process.
TEST_F(HubRecord, RecordIsWrittenBeforeTheJobCanEnd) {
  Leader leader(3, options);
  Connection lost = leader.join(1, "node1");
  Connection well = leader.join(2, "node2");
  lost = {};
  ASSERT_TRUE(leader.hub->verdict(120s));
  well.send({MessageKind::goodbye, 2, {}});
  leader.hub->wait_for_peer_exit(1h);
  EXPECT_TRUE(std::filesystem::exists(options.dump));
}

TEST_F(HubRecord, RecordThatCannotBeWrittenIsNotAwaited) {
  options.dump += "/no-such-directory/record.json";
  Leader leader(2, options);
  Connection lost = leader.join(1, "node1");
  lost = {};
  ASSERT_TRUE(leader.hub->verdict(120s));
  leader.hub->wait_for_peer_exit(1h);
}

TEST(Hub, ProcessThatDoesNotExitAfterAFailureIsTerminated) {
  auto options = quick();
  options.liveness.exit = 50ms;
  std::atomic<bool> ended = false;
  options.end_process = [&] { ended = true; };
  Leader leader(2, options);
  leader.failures.fail({.rank = 0, .text = "no more coffee"});
  EXPECT_TRUE(eventually([&] { return ended.load(); }));
}

// The other ranks exit because rank 0 was stopped. When rank 0 runs again, it must not blame them
// or a rank that the launcher terminated with them.
TEST_F(HubRecord, LeaderThatWasStoppedDoesNotBlameTheOthers) {
  options.liveness.silence = 1h;
  {
    Leader leader(3, options);
    Connection one = leader.join(1, "node1");
    Connection two = leader.join(2, "node1");
    one.send({MessageKind::hub_lost, 1, "rank 0 (node0, process 7) has been silent for 8 s"});
    one.close();
    two.close();
    const auto verdict = leader.hub->verdict(120s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 0);
    EXPECT_TRUE(verdict->lost);
    EXPECT_EQ(verdict->kind, FailureKind::stopped);
    EXPECT_EQ(verdict->text, "rank 0 (node0, process 7) has been silent for 8 s");
    leader.hub.reset();
  }
  const auto record = read_record();
  EXPECT_EQ(record.at("kind"), "stopped");
  EXPECT_EQ(record.at("rank"), 0);
  ASSERT_EQ(record.at("lost").size(), 1U) << record.at("lost");
  EXPECT_EQ(record.at("lost")[0].at("rank"), 0);
}

// Without the failure, the other ranks would report an unexpected exit of rank 0.
TEST(Hub, LeaderThatFailsAndExitsImmediatelyReportsWhy) {
  for (int i = 0; i < 100; ++i) {
    std::optional<Connection> one;
    {
      Leader leader(2);
      one = leader.join(1);
      ASSERT_TRUE(one->await(120s)) << "a heartbeat means that the hub has accepted the rank";
    }
    const auto told = next_of(*one);
    ASSERT_TRUE(told) << "round " << i;
    ASSERT_EQ(told->text, "the test is over");
  }
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// SLURM_DDP_HUB_RANKS=4000 turns this test into a benchmark that reports the CPU time of rank 0.
TEST(Hub, AcceptsAndNotifiesManyRanks) {
  raise_descriptor_limit();
  const char* wanted = std::getenv("SLURM_DDP_HUB_RANKS");
  const int ranks = wanted != nullptr ? std::atoi(wanted) : 300;
  Listener listener = listen_anywhere();
  test::PlayedRanks others(ranks, listener);
  FailureState failures;
  FlightRecorder recorder;
  auto options = ChannelOptions{};
  options.liveness = scaled({}, ranks);
  const double before = processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  Hub hub(failures, recorder, std::move(listener), test::channel_key(), ranks, options);
  EXPECT_EQ(others.notified(), ranks - 1);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  RecordProperty("processor_seconds", std::to_string(processor_seconds() - before));
  if (wanted != nullptr) {
    printf(
        "%d ranks accepted and notified of a failure in %.2f s; rank 0's part: %.2f s of CPU "
        "time\n",
        ranks, wall.count(), processor_seconds() - before);
  }
}

// Lowers the limit on open files and opens all but one of them.
class OneDescriptorLeft {
 public:
  OneDescriptorLeft() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{std::min<rlim_t>(before_.rlim_cur, 128), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (true) {
      FileDescriptor taken(dup(STDERR_FILENO));
      if (!taken) break;
      taken_.push_back(std::move(taken));
    }
    if (!taken_.empty()) taken_.pop_back();
  }
  OneDescriptorLeft(const OneDescriptorLeft&) = delete;
  OneDescriptorLeft& operator=(const OneDescriptorLeft&) = delete;
  ~OneDescriptorLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<FileDescriptor> taken_;
};

TEST(Hub, MissingDescriptorsAreReported) {
  Leader leader(4);
  Connection one = leader.join(1);
  ASSERT_TRUE(one.await(120s)) << "a heartbeat: rank 1 has joined";
  const OneDescriptorLeft one_descriptor_left;
  // The connection may fail immediately, because rank 0 closes its port.
  const auto two = Connection::open({"127.0.0.1"}, leader.port, 60s);
  ASSERT_TRUE(eventually([&] { return leader.failures.failed(); }));
  EXPECT_EQ(leader.failures.failure()->rank, 0);
  EXPECT_THAT(leader.failures.failure()->text,
              AllOf(HasSubstr("rank 0 has no file descriptor left"),
                    HasSubstr("(2 of 3 are missing, the limit is 128)")));
}

}  // namespace
}  // namespace ddp::comm
