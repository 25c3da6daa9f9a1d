// SPDX-License-Identifier: Apache-2.0
// Ends of an error channel for tests: real ends over TCP on this machine, and ends that the test
// itself simulates. Timeouts that must expire are short, and no test requires an event within a
// time limit.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/greeting.h"
#include "ddp_runtime/comm/failure/error_channel.h"
#include "ddp_runtime/comm/failure/hub.h"
#include "ddp_runtime/comm/failure/spoke.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"

namespace ddp::comm::test {

// A timeout that expires only if an event never occurs.
inline constexpr std::chrono::seconds kLong{120};

inline Key channel_key(const std::string& secret = "secret") {
  return hmac_sha256(std::as_bytes(std::span(secret)), "error channel");
}

inline ChannelOptions quick() {
  using namespace std::chrono_literals;
  ChannelOptions options;
  options.liveness = {.heartbeat = 20ms, .silence = 200ms, .reconnect = 60ms, .exit = 1h};
  return options;
}

inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Simulates a cut link on one connection: this end's kernel drops all data from the other end and
// does not acknowledge it.
inline void cut(int fd) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{1, &nothing};
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
}

inline std::string process_on(const std::string& node, int rank) {
  return node + ", process " + std::to_string(rank);
}

// Returns a connection of this rank that the hub has accepted; nullopt if the hub has not accepted
// it.
inline std::optional<Connection> call(std::uint16_t port, int rank, const std::string& who) {
  auto connection = Connection::open({"127.0.0.1"}, port, kLong);
  if (!connection || greet(*connection, {channel_key(), rank, who}, kLong) != Greeted::welcome) {
    return std::nullopt;
  }
  connection->send({MessageKind::alive, 0, {}});
  return connection;
}

// Rank 0, with a port to which other ranks may connect.
struct Leader {
  explicit Leader(int ranks, ChannelOptions options = quick())
      : listener(listen_anywhere()),
        port(listener.port),
        hub(std::make_unique<Hub>(failures, recorder, std::move(listener), channel_key(), ranks,
                                  std::move(options))) {}
  ~Leader() {
    // Without a failure, the hub's destructor would wait for goodbyes that the test does not send.
    failures.fail({.rank = 0, .text = "the test is over"});
  }

  Connection knock() const { return *Connection::open({"127.0.0.1"}, port, kLong); }
  Connection join(int rank, const std::string& node = "nodeX") const {
    auto connection = call(port, rank, process_on(node, rank));
    EXPECT_TRUE(connection) << "rank " << rank;
    return connection ? *std::move(connection) : Connection();
  }

  FailureState failures;
  FlightRecorder recorder;
  Listener listener;
  std::uint16_t port;
  std::unique_ptr<Hub> hub;
};

// The next message that is not a heartbeat or a status request.
inline std::optional<Message> next_of(Connection& connection) {
  while (auto message = connection.await(kLong)) {
    if (message->kind != MessageKind::alive && message->kind != MessageKind::status_request) {
      return message;
    }
  }
  return std::nullopt;
}

// Plays all ranks of a large job except rank 0. All send a hello at once, are accepted, and wait
// for a failure. Returns the number of ranks that were notified of the failure.
inline int play_ranks(int ranks, std::uint16_t port) {
  struct Player {
    Connection connection;
    RankGreeting greeting;
  };
  std::vector<Player> players;
  for (int rank = 1; rank < ranks; ++rank) {
    auto connection = Connection::open({"127.0.0.1"}, port, std::chrono::seconds(60));
    if (!connection) return 0;
    players.push_back(
        {*std::move(connection), {channel_key(), rank, "node" + std::to_string(rank / 8)}});
    players.back().greeting.begin(players.back().connection);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (auto& [connection, greeting] : players) {
    while (greeting.advance(connection) != RankGreeting::State::welcome) {
      if (!connection.fill_before(deadline)) return 0;
    }
    connection.send({MessageKind::alive, 0, {}});
  }
  players.back().connection.send({MessageKind::failure, ranks - 1, "the disk is full"});
  int told = 0;
  for (auto& player : players) {
    const auto message = next_of(player.connection);
    told += message && message->kind == MessageKind::failure ? 1 : 0;
  }
  return told;
}

// Runs play_ranks() in a separate process, so that this process has only rank 0's system calls and
// CPU time.
class PlayedRanks {
 public:
  PlayedRanks(int ranks, Listener& listener) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    answer_ = FileDescriptor(ends[0]);
    const FileDescriptor theirs(ends[1]);
    child_ = fork();
    EXPECT_GE(child_, 0);
    if (child_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    listener.socket.close();
    const int told = play_ranks(ranks, listener.port);
    [[maybe_unused]] const auto n = write(theirs.get(), &told, sizeof told);
    _exit(0);
  }
  PlayedRanks(const PlayedRanks&) = delete;
  PlayedRanks& operator=(const PlayedRanks&) = delete;
  ~PlayedRanks() { waitpid(child_, nullptr, 0); }

  // Waits until all ranks were notified of the failure, and returns their number.
  int notified() {
    int told = 0;
    EXPECT_EQ(read(answer_.get(), &told, sizeof told), static_cast<ssize_t>(sizeof told));
    return told;
  }

 private:
  FileDescriptor answer_;
  pid_t child_ = -1;
};

// A port to which a rank connects as if rank 0 listened there.
struct ListeningLeader {
  Connection accept() const {
    int fd = -1;
    eventually([&] {
      fd = ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      return fd >= 0;
    });
    return Connection(FileDescriptor(fd));
  }
  Listener listener = listen_anywhere();
};

// Rank 0's side of a greeting; may block. Returns false if the caller is not a rank.
inline bool welcome(Connection& connection, HubGreeting& greeting, const Key& key = channel_key()) {
  const auto hello = connection.await(kLong);
  const auto challenge = hello ? greeting.challenge(*hello, key) : std::nullopt;
  if (!challenge || !connection.send(*challenge)) return false;
  const auto proof = connection.await(kLong);
  if (!proof || !greeting.accepts(*proof, key)) return false;
  const SessionKeys keys = greeting.session(key);
  connection.seal(keys.of_hub, keys.of_rank);
  return connection.send({MessageKind::welcome, 0, {}});
}

// Rank 1's end, which start() makes, and rank 0's end of its connection, which the test plays.
struct SpokeAndLeader {
  SpokeAndLeader() : outgoing(*Connection::open({"127.0.0.1"}, leader.listener.port, kLong)) {}
  void start(ChannelOptions options = quick(), std::vector<Connection::Endpoint> addresses = {}) {
    spoke.emplace(failures, recorder, std::move(outgoing),
                  Spoke::Who{1, channel_key(), "node1, process 9", std::move(addresses)},
                  std::move(options));
  }
  // The rank's next connection, greeted like its first one.
  Connection accept_again() const {
    Connection fresh = leader.accept();
    HubGreeting greeting;
    EXPECT_TRUE(welcome(fresh, greeting));
    EXPECT_EQ(greeting.rank(), 1);
    return fresh;
  }

  ListeningLeader leader;
  Connection outgoing;
  Connection connection = leader.accept();
  FailureState failures;
  FlightRecorder recorder;
  std::optional<Spoke> spoke;
};

// A rank with its own channel.
struct ChannelRank {
  Group& group;
  FailureState& failures;
  ErrorChannel& channel;
};

// Each rank is a thread with its own objects, as in a real job.
inline void with_channels(std::vector<std::unique_ptr<Transport>> transports,
                          const GroupOptions& group_options, const ChannelOptions& options,
                          const std::function<void(ChannelRank)>& body) {
  std::vector<std::thread> threads;
  for (auto& transport : transports) {
    threads.emplace_back([&] {
      FailureState failures;
      P2pGroup group(std::move(transport), failures, group_options);
      ErrorChannel channel(group, failures, options);
      body({group, failures, channel});
    });
  }
  for (auto& thread : threads) thread.join();
}

inline void with_channels(int ranks, const std::function<void(ChannelRank)>& body) {
  with_channels(make_in_process_transports(ranks), {}, {}, body);
}

}  // namespace ddp::comm::test
