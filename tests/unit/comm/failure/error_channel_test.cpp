// SPDX-License-Identifier: Apache-2.0
// Tests the real channel over TCP on this machine, with one FailureState per rank as in a real job.
#include "ddp_runtime/comm/failure/error_channel.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include "base/channel/connection.h"
#include "ddp_runtime/comm/failure/hub.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"
#include "tests/unit/comm/failure/channel_peers.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using test::channel_key;
using test::with_channels;
using Rank = test::ChannelRank;

// A transport that reports each message some milliseconds after its arrival.
class Sluggish final : public Transport {
 public:
  explicit Sluggish(std::unique_ptr<Transport> real) : real_(std::move(real)) {}

  int rank() const noexcept override { return real_->rank(); }
  int size() const noexcept override { return real_->size(); }
  std::string_view name() const noexcept override { return real_->name(); }
  int world_rank(int rank) const noexcept override { return real_->world_rank(rank); }
  std::string node_key() const override { return real_->node_key(); }
  bool one_process() const noexcept override { return real_->one_process(); }
  Ticket post_send(std::span<const std::byte> data, int peer, int tag) override {
    return real_->post_send(data, peer, tag);
  }
  Ticket post_receive(std::span<std::byte> data, int peer, int tag) override {
    return real_->post_receive(data, peer, tag);
  }
  bool poll(Ticket ticket) override { return ++polls_ % 8 == 0 && real_->poll(ticket); }
  void idle(int) override { std::this_thread::sleep_for(1ms); }
  void abandon(Ticket ticket) noexcept override { real_->abandon(ticket); }
  std::unique_ptr<Transport> split(std::span<const int> members) override {
    return real_->split(members);
  }

 private:
  std::unique_ptr<Transport> real_;
  int polls_ = 0;
};

TEST(ErrorChannel, FailureReachesAllRanksWithItsText) {
  for (const int culprit : {0, 2}) {
    std::atomic<int> told{0};
    with_channels(4, [&](Rank rank) {
      if (rank.group.rank() == culprit) {
        rank.failures.fail({culprit, "the disk is full"});
      } else {
        try {
          rank.group.barrier().wait();
        } catch (const PeerFailure& failure) {
          EXPECT_EQ(failure.rank(), culprit);
          EXPECT_STREQ(failure.what(), "the disk is full");
          ++told;
        }
      }
      const auto verdict = rank.channel.verdict(5s);
      ASSERT_TRUE(verdict) << "rank " << rank.group.rank();
      EXPECT_EQ(verdict->rank, culprit);
    });
    EXPECT_EQ(told, 3);
  }
}

TEST(ErrorChannel, UsageErrorIsUsageErrorOnAllRanks) {
  for (const int culprit : {0, 1}) {
    with_channels(3, [&](Rank rank) {
      if (rank.group.rank() == culprit) {
        rank.failures.fail({.rank = culprit, .text = "no such file", .is_usage_error = true});
        return;
      }
      try {
        rank.group.barrier().wait();
        ADD_FAILURE() << "rank " << rank.group.rank();
      } catch (const PeerFailure& failure) {
        EXPECT_TRUE(failure.is_usage_error());
      }
    });
  }
}

TEST(ErrorChannel, SimultaneousFailuresGiveOneFirstFailure) {
  std::vector<int> verdicts(5, -1);
  with_channels(5, [&](Rank rank) {
    const int me = rank.group.rank();
    rank.failures.fail({me, "rank " + std::to_string(me)});
    const auto verdict = rank.channel.verdict(5s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->text, "rank " + std::to_string(verdict->rank));
    verdicts[static_cast<std::size_t>(me)] = verdict->rank;
  });
  EXPECT_THAT(verdicts, testing::Each(verdicts[0]));
  EXPECT_GE(verdicts[0], 0);
}

TEST(ErrorChannel, RankMayFailBeforeRankZeroIsReady) {
  auto transports = make_in_process_transports(4);
  transports[0] = std::make_unique<Sluggish>(std::move(transports[0]));
  with_channels(std::move(transports), {}, {}, [&](Rank rank) {
    if (rank.group.rank() == 2) rank.failures.fail({2, "no memory"});
    const auto verdict = rank.channel.verdict(5s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->text, "no memory");
    EXPECT_EQ(verdict->rank, 2);
  });
}

// A wrapper around the program may remove the step's key from one rank's environment.
TEST(ErrorChannel, OpensWhicheverStepKeysTheRanksHave) {
  const std::optional<Key> one = channel_key("one");
  const std::optional<Key> other = channel_key("other");
  for (const auto& keys : std::vector<std::vector<std::optional<Key>>>{{one, one, one},
                                                                       {one, std::nullopt, one},
                                                                       {std::nullopt, one, one},
                                                                       {one, one, other}}) {
    auto transports = make_in_process_transports(3);
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < keys.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        FailureState failures;
        P2pGroup group(std::move(transports[rank]), failures);
        EXPECT_NO_THROW({
          ErrorChannel channel(group, failures, {.step_key = keys[rank]});
          group.barrier("").wait();
        });
      });
    }
    for (auto& rank : ranks) rank.join();
  }
}

TEST(ErrorChannel, OrderlyShutdownIsNotAFailure) {
  with_channels(3, [](Rank rank) {
    rank.group.barrier().wait();
    EXPECT_FALSE(rank.failures.failed());
  });
}

// Kills a real process, for which only the kernel's FIN is sent.
TEST(ErrorChannel, KilledProcessIsNamed) {
  Listener listener = listen_anywhere();
  const std::uint16_t port = listener.port;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto connection = test::call(port, 1, "nodeX, process 1");
    [[maybe_unused]] const auto n = write(ready[1], connection ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  FailureState failures;
  FlightRecorder recorder;
  Hub hub(failures, recorder, std::move(listener), channel_key(), 2);
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_FALSE(failures.failed());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto verdict = hub.verdict(5s);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_TRUE(verdict->lost);
  EXPECT_THAT(verdict->text, HasSubstr("nodeX, process 1"));
  close(ready[0]);
  close(ready[1]);
}

TEST(ErrorChannel, UnauthenticatedConnectionsAreDropped) {
  Listener listener = listen_anywhere();
  const std::uint16_t port = listener.port;
  FailureState failures;
  FlightRecorder recorder;
  Hub hub(failures, recorder, std::move(listener), channel_key(), 2);

  auto wrong_key = Connection::open({"127.0.0.1"}, port, 3s);
  ASSERT_TRUE(wrong_key);
  EXPECT_NE(greet(*wrong_key, {channel_key("guess"), 1, "nodeX"}, test::kLong), Greeted::welcome);
  auto impatient = Connection::open({"127.0.0.1"}, port, 3s);
  impatient->send({MessageKind::failure, 1, "I am not of this job"});
  EXPECT_FALSE(impatient->await(test::kLong));
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n";
  auto web = Connection::open({"127.0.0.1"}, port, 3s);
  ASSERT_GT(::send(web->fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);

  auto friendly = test::call(port, 1, "nodeX");
  ASSERT_TRUE(friendly);
  EXPECT_FALSE(failures.failed());
  friendly->send({MessageKind::goodbye, 1, {}});
  EXPECT_TRUE(hub.wait_for_peer_exit(5s));
}

}  // namespace
}  // namespace ddp::comm
