// The first messages of the error channel: who is taken for a rank, and who for the hub.
#include "ddp_runtime/comm/failure/greeting.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>
#include <vector>

namespace ddp::comm {
namespace {

constexpr std::chrono::seconds kLong{20};

struct Pair {
  Connection hub;
  Connection rank;
};

Pair connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Connection(FileDescriptor(ends[0])), Connection(FileDescriptor(ends[1]))};
}

// The hub's side until the greeting ends; what the rank said on the way.
std::vector<Message> listen(Connection hub, HubGreeting& greeting, const std::string& token) {
  std::vector<Message> heard;
  while (const auto message = hub.await(kLong)) {
    heard.push_back(*message);
    const auto answer = greeting.answer(*message, token);
    if (!answer || !hub.send(*answer) || greeting.done()) break;
  }
  return heard;
}

TEST(Greeting, RankAndHubThatKnowTheTokenMeet) {
  Pair pair = connected();
  HubGreeting greeting;
  std::vector<Message> heard;
  std::thread hub([&] { heard = listen(std::move(pair.hub), greeting, "the token"); });
  EXPECT_TRUE(greet(pair.rank, {"the token", 3, "node2, process 4711"}, kLong));
  hub.join();
  EXPECT_TRUE(greeting.done());
  EXPECT_EQ(greeting.rank(), 3);
  EXPECT_EQ(greeting.who(), "node2, process 4711");
  for (const auto& message : heard) EXPECT_EQ(message.text.find("the token"), std::string::npos);
}

TEST(Greeting, WhoDoesNotKnowTheTokenIsNeither) {
  Pair pair = connected();
  HubGreeting greeting;
  std::thread hub([&] { listen(std::move(pair.hub), greeting, "the token"); });
  EXPECT_FALSE(greet(pair.rank, {"another", 3, "node2"}, kLong));
  pair.rank.close();
  hub.join();
  EXPECT_FALSE(greeting.done());
}

TEST(Greeting, AHubThatSaysWelcomeAndNothingElseIsNone) {
  Pair pair = connected();
  for (int i = 0; i < 2; ++i) pair.hub.send({MessageKind::welcome, 0, {}});
  EXPECT_FALSE(greet(pair.rank, {"the token", 3, "node2"}, kLong));
}

TEST(Greeting, TheHubsOwnProofSentBackIsNone) {
  HubGreeting greeting;
  const auto challenge =
      greeting.answer({MessageKind::hello, 3, random_nonce() + " node2"}, "the token");
  ASSERT_TRUE(challenge);
  const std::string proof = challenge->text.substr(challenge->text.find(' ') + 1);
  EXPECT_FALSE(greeting.answer({MessageKind::hello, 3, proof}, "the token"));
  EXPECT_FALSE(greeting.done());
}

TEST(Greeting, MessagesOfStrangersAreNotAnswered) {
  for (const Message& message :
       {Message{MessageKind::failure, 3, "x"}, Message{MessageKind::hello, 3, "short node2"},
        Message{MessageKind::hello, 3, random_nonce()}, Message{MessageKind::hello, 3, ""}}) {
    HubGreeting greeting;
    EXPECT_FALSE(greeting.answer(message, "the token")) << message.text;
  }
}

}  // namespace
}  // namespace ddp::comm
