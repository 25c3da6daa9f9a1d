// SPDX-License-Identifier: Apache-2.0
// Tests the handshake of the error channel: which programs are accepted as a rank and as rank 0,
// with impostors at either end and between the ends.
#include "base/channel/greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/failure/hub_search.h"
#include "tests/unit/comm/failure/channel_peers.h"

namespace ddp::comm {
namespace {

using test::channel_key;
using test::kLong;
using testing::AllOf;
using testing::HasSubstr;

struct Wire {
  Connection one;
  Connection other;
};

Wire connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Connection(FileDescriptor(ends[0])), Connection(FileDescriptor(ends[1]))};
}

RankGreeting rank_3(const std::string& secret = "secret") {
  return {channel_key(secret), 3, "node2, process 4711"};
}

TEST(Greeting, SucceedsIfBothKnowTheKey) {
  Wire wire = connected();
  HubGreeting greeting;
  std::thread hub([&] {
    EXPECT_TRUE(test::welcome(wire.one, greeting));
    wire.one.send({MessageKind::failure, 2, "the disk is full"});
  });
  EXPECT_EQ(greet(wire.other, rank_3(), kLong), Greeted::welcome);
  hub.join();
  EXPECT_EQ(greeting.rank(), 3);
  EXPECT_EQ(greeting.who(), "node2, process 4711");
  const auto told = wire.other.await(kLong);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->text, "the disk is full");
}

TEST(Greeting, FailsWithoutTheKeyOnEitherSide) {
  Wire wire = connected();
  std::thread hub([&] {
    HubGreeting greeting;
    EXPECT_FALSE(test::welcome(wire.one, greeting));
    wire.one.close();
  });
  EXPECT_EQ(greet(wire.other, rank_3("guess"), kLong), Greeted::stranger);
  wire.other.close();
  hub.join();
}

TEST(Greeting, HubMustProveItself) {
  for (const std::string text : {"", "0", "x y", "0123456789abcdef0123456789abcdef 00"}) {
    Wire wire = connected();
    for (int i = 0; i < 2; ++i) wire.one.send({MessageKind::welcome, 0, text});
    EXPECT_EQ(greet(wire.other, rank_3(), kLong), Greeted::stranger) << text;
  }
}

TEST(Greeting, SilenceIsReportedAsSilent) {
  Wire wire = connected();
  EXPECT_EQ(greet(wire.other, rank_3(), std::chrono::milliseconds(20)), Greeted::silent);
  wire.one.close();
  EXPECT_EQ(greet(wire.other, rank_3(), kLong), Greeted::silent);
}

TEST(Greeting, ReflectedProofIsRejected) {
  HubGreeting greeting;
  const auto challenge =
      greeting.challenge({MessageKind::hello, 3, random_nonce() + " node2"}, channel_key());
  ASSERT_TRUE(challenge);
  const std::string proof = challenge->text.substr(kNonceCharacters + 1);
  EXPECT_FALSE(greeting.accepts({MessageKind::hello, 3, proof}, channel_key()));
}

TEST(Greeting, InvalidFirstMessagesAreNotAnswered) {
  for (const Message& message :
       {Message{MessageKind::failure, 3, random_nonce() + " x"},
        Message{MessageKind::hello, 3, "short node2"},
        Message{MessageKind::hello, 3, random_nonce()}, Message{MessageKind::hello, 3, ""}}) {
    EXPECT_FALSE(HubGreeting().challenge(message, channel_key())) << message.text;
  }
}

// Forwards data from one end to the other, under the control of the test.
struct Relay {
  // Returns the next bytes; empty if the sender has closed its end.
  static std::string read(Connection& from) {
    std::string bytes(4096, '\0');
    ssize_t n = 0;
    test::eventually([&] {
      n = recv(from.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      return n >= 0;
    });
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return bytes;
  }
  static void write(Connection& to, const std::string& bytes) {
    ::send(to.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  Wire to_hub = connected();   // one: the hub
  Wire to_rank = connected();  // other: the rank
  std::vector<std::string> said;
};

// Runs a greeting through a relay that changes byte `at` of message `which` (0: the rank's first
// message).
struct Outcome {
  bool hub = false;
  Greeted rank = Greeted::silent;
  std::vector<std::string> said;
};
Outcome greet_through(int which, std::size_t at, char change) {
  Relay relay;
  Outcome outcome;
  std::thread hub([&] {
    HubGreeting greeting;
    try {
      outcome.hub = test::welcome(relay.to_hub.one, greeting) &&
                    relay.to_hub.one.await(kLong).has_value();  // the rank's next message
    } catch (const std::exception&) {
      outcome.hub = false;
    }
    relay.to_hub.one.close();
  });
  std::thread rank([&] {
    outcome.rank = greet(relay.to_rank.other, rank_3(), std::chrono::seconds(2));
    if (outcome.rank == Greeted::welcome) relay.to_rank.other.send({MessageKind::alive, 0, {}});
    relay.to_rank.other.close();
  });
  for (int i = 0; i < 5; ++i) {
    Connection& from = i % 2 == 0 ? relay.to_rank.one : relay.to_hub.other;
    Connection& to = i % 2 == 0 ? relay.to_hub.other : relay.to_rank.one;
    std::string bytes = Relay::read(from);
    outcome.said.push_back(bytes);
    if (bytes.empty()) break;
    if (i == which && at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ change);
    Relay::write(to, bytes);
  }
  relay.to_rank.one.close();
  relay.to_hub.other.close();
  hub.join();
  rank.join();
  return outcome;
}

TEST(Greeting, ChangedByteIsDetected) {
  const Outcome untouched = greet_through(-1, 0, 0);
  EXPECT_TRUE(untouched.hub);
  EXPECT_EQ(untouched.rank, Greeted::welcome);
  ASSERT_EQ(untouched.said.size(), 5U);
  for (int which = 0; which < 5; ++which) {
    const std::size_t bytes = untouched.said[static_cast<std::size_t>(which)].size();
    for (std::size_t at = 0; at < bytes; ++at) {
      // Increased length fields announce a message that never arrives, which only a timeout can
      // detect.
      if (at >= 5 && at < 9) continue;
      EXPECT_FALSE(greet_through(which, at, 1).hub) << "byte " << at << " of message " << which;
    }
  }
}

TEST(Greeting, SecretsAreNeverSent) {
  for (const auto& bytes : greet_through(-1, 0, 0).said) {
    EXPECT_EQ(bytes.find(hex_of(channel_key())), std::string::npos);
    EXPECT_EQ(bytes.find(reinterpret_cast<const char*>(channel_key().data()), 0, kKeyBytes),
              std::string::npos);
  }
}

TEST(Greeting, ReplayIsRejected) {
  const auto recorded = greet_through(-1, 0, 0).said;
  ASSERT_EQ(recorded.size(), 5U);
  test::Leader leader(4);
  Connection thief = leader.knock();
  for (const int i : {0, 2, 4}) Relay::write(thief, recorded[static_cast<std::size_t>(i)]);
  while (thief.await(kLong)) {  // the hub's challenge, which the thief cannot answer
  }
  EXPECT_EQ(thief.state(), StreamState::ended);
  Wire wire = connected();
  Relay::write(wire.one, recorded[1] + recorded[3]);
  EXPECT_EQ(greet(wire.other, rank_3(), kLong), Greeted::stranger);
  EXPECT_FALSE(leader.failures.failed());
}

// A relay may forward a greeting, but afterwards it cannot send its own messages.
TEST(Greeting, RelayCannotInjectMessages) {
  test::Leader leader(2);
  Connection to_hub = leader.knock();
  Wire to_rank = connected();
  std::thread rank([&] {
    EXPECT_EQ(greet(to_rank.other, {channel_key(), 1, "node1, process 9"}, kLong),
              Greeted::welcome);
  });
  for (int i = 0; i < 4; ++i) {
    Connection& from = i % 2 == 0 ? to_rank.one : to_hub;
    Relay::write(i % 2 == 0 ? to_hub : to_rank.one, Relay::read(from));
  }
  rank.join();
  Relay::write(to_hub,
               encode({MessageKind::failure, 1, "the disk is full"}) + std::string(kKeyBytes, 'x'));
  EXPECT_FALSE(to_hub.fill_before(std::chrono::steady_clock::now() + kLong));
  EXPECT_EQ(to_hub.state(), StreamState::ended);
  EXPECT_FALSE(leader.failures.failed());
}

// ---- the search for rank 0

Searcher rank_1() {
  return {channel_key(), 1, "node1, process 9"};
}

TEST(HubSearch, SkipsAndReportsImpostors) {
  test::ListeningLeader impostor;
  std::thread web_server([&] {
    Connection caller = impostor.accept();
    caller.await(kLong);
    Relay::write(caller, "HTTP/1.1 400 Bad Request\r\n\r\n");
    Relay::read(caller);
  });
  FailureState failures;
  const HubAddress there{{"127.0.0.1"}, impostor.listener.port, "node0, process 8"};
  const SearchLimits once{.each = kLong, .in_all = std::chrono::milliseconds(0)};
  const Reached reached = reach_hub(there, rank_1(), once, failures);
  web_server.join();
  EXPECT_FALSE(reached.connection);
  EXPECT_THAT(why_unreachable(there, reached), AllOf(HasSubstr("rank 0 (node0, process 8, port "),
                                                     HasSubstr(": the program at 127.0.0.1, port "),
                                                     HasSubstr("is not rank 0 of this job")));
}

TEST(HubSearch, ReportsASilentPort) {
  test::ListeningLeader silent;
  FailureState failures;
  const HubAddress there{{"127.0.0.1"}, silent.listener.port, "node0, process 8"};
  const SearchLimits short_ones{.each = std::chrono::milliseconds(20),
                                .in_all = std::chrono::milliseconds(0)};
  EXPECT_THAT(why_unreachable(there, reach_hub(there, rank_1(), short_ones, failures)),
              HasSubstr("127.0.0.1 accepts the connection but does not answer"));
  silent.listener.socket.close();
  EXPECT_THAT(why_unreachable(there, reach_hub(there, rank_1(), short_ones, failures)),
              HasSubstr("at any of: 127.0.0.1; a firewall"));
}

// Sends the messages of impostors before those of the ranks.
TEST(HubSearch, FindsRankZeroAmongManyImpostors) {
  const std::vector<std::string> opening{
      "",                                                                     // nothing
      "GET / HTTP/1.1\r\n\r\n",                                               // another protocol
      encode({MessageKind::hello, 1, "x"}).substr(0, 5),                      // half a header
      encode({MessageKind::hello, 1, std::string(400, 'x')}).substr(0, 100),  // half a message
      encode({MessageKind::hello, 1,
              random_nonce() + " node1, process 9"}),  // without the required proof
      encode({MessageKind::hello, 1, random_nonce() + " node1, process 9"}) +
          encode({MessageKind::hello, 1, std::string(2 * kKeyBytes, '0')}),  // a wrong proof
      std::string(9, '\xff'),
  };
  test::Leader leader(9);
  std::atomic<bool> over = false;
  std::atomic<int> strangers = 0;
  std::thread flood([&] {
    std::deque<Connection> held;
    for (std::size_t i = 0; !over; ++i) {
      auto stranger = Connection::open({"127.0.0.1"}, leader.port, std::chrono::seconds(1));
      if (!stranger) continue;  // the port is closed: all ranks have joined
      Relay::write(*stranger, opening[i % opening.size()]);
      held.push_back(*std::move(stranger));
      if (held.size() > 600) held.pop_front();
      ++strangers;
    }
  });
  test::eventually([&] { return strangers > 700; });
  FailureState failures;
  std::vector<Connection> ranks;
  for (int rank = 1; rank < 9; ++rank) {
    auto reached = reach_hub({{"127.0.0.1"}, leader.port, "node0, process 8"},
                             {channel_key(), rank, test::process_on("node1", rank)},
                             {.each = std::chrono::seconds(5), .in_all = kLong}, failures);
    EXPECT_TRUE(reached.connection) << rank;
    if (reached.connection) ranks.push_back(*std::move(reached.connection));
  }
  over = true;
  flood.join();
  EXPECT_FALSE(leader.failures.failed());
}

TEST(HubSearch, FindsRankZero) {
  test::Leader leader(2);
  FailureState failures;
  const Reached reached =
      reach_hub({{"127.0.0.1"}, leader.port, "node0, process 8"}, rank_1(),
                {.each = kLong, .in_all = std::chrono::milliseconds(0)}, failures);
  EXPECT_TRUE(reached.connection);
  EXPECT_FALSE(reached.stranger);
}

}  // namespace
}  // namespace ddp::comm
