// SPDX-License-Identifier: Apache-2.0
// Guards of several nodes, over TCP on this machine. Nothing must happen within a time limit.
#include "spank_plugin/guard/tcp_node_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "base/channel/greeting.h"
#include "base/socket.h"

namespace ddp::guard {
namespace {

using std::chrono::seconds;
using LastWords = NodeLink::LastWords;
using testing::IsNull;
using testing::SizeIs;

const std::string kKey(64, 'a');

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + seconds(120);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

watch::RanksReport quiet_rank(std::uint32_t rank) {
  watch::RanksReport one;
  one.ranks = {{watch::RankState::running, seconds(30), {}, {}}};
  one.facts = {{rank, 7, 0, ""}};
  return one;
}

class TcpNodeLinkTest : public testing::Test {
 protected:
  // Two ports that are free.
  TcpNodeLinkTest() {
    const Listener one = open_listener(0);
    const Listener other = open_listener(0);
    place = {{"127.0.0.1"}, {one.port, other.port}};
  }
  std::unique_ptr<NodeLink> link(std::uint32_t node, const std::string& key = kKey) const {
    return make_tcp_link({place, key, node, "node" + std::to_string(node), 8});
  }
  static std::size_t heard_by(const NodeLink& hub) { return hub.others(Clock::now()).ranks.size(); }
  // As guards do every second.
  static bool reaches(NodeLink& node, std::uint32_t rank, const NodeLink& hub, std::size_t ranks) {
    return eventually([&] {
      node.publish(quiet_rank(rank));
      return heard_by(hub) == ranks;
    });
  }

  HubPlace place;
};

TEST_F(TcpNodeLinkTest, HubHearsWhatOtherNodesPublishAndAsksThem) {
  const auto early = link(4);  // before there is a hub
  const auto hub = link(0);
  EXPECT_TRUE(hub->is_hub());
  EXPECT_TRUE(reaches(*early, 4, *hub, 1));
  const auto late = link(8);
  EXPECT_TRUE(reaches(*late, 8, *hub, 2));
  EXPECT_TRUE(early->is_connected());
  EXPECT_FALSE(early->was_asked());
  const auto others = hub->others(Clock::now());
  EXPECT_EQ(others.facts[0].rank, 4U);
  EXPECT_EQ(others.facts[0].node, "node4");
  EXPECT_EQ(others.facts[1].rank, 8U);
  EXPECT_EQ(others.ranks[0].quiet, seconds(30));
  hub->ask();
  EXPECT_TRUE(eventually([&] { return early->was_asked(); }));
  EXPECT_TRUE(eventually([&] { return late->was_asked(); }));
  EXPECT_FALSE(late->was_asked()) << "once";
}

TEST_F(TcpNodeLinkTest, OfANodeThatIsSilentNothingIsKnown) {
  const auto hub = link(0);
  const auto other = link(4);
  ASSERT_TRUE(reaches(*other, 4, *hub, 1));
  EXPECT_THAT(hub->others(Clock::now() + seconds(5)).ranks, SizeIs(1));
  EXPECT_THAT(hub->others(Clock::now() + seconds(60)).ranks, SizeIs(0));
}

TEST_F(TcpNodeLinkTest, AReportThatWasLongOnItsWayIsOld) {
  Listener listener = open_listener(place.ports[0]);
  const WakeEvent waker;
  NodeHub hub(std::move(listener), hmac_sha256(*key_from_hex(kKey), "watch"), 8, waker.fd());
  auto connection = *Connection::open({"127.0.0.1"}, place.ports[0], seconds(60));
  RankGreeting greeting(hmac_sha256(*key_from_hex(kKey), "watch"), 4, "node4");
  greeting.begin(connection);
  ASSERT_TRUE(eventually([&] {
    hub.turn();
    connection.fill();
    return greeting.advance(connection) == RankGreeting::State::welcome;
  }));
  const std::string text = watch::to_text(quiet_rank(4));
  const auto known_after = [&](int number) {
    connection.send({MessageKind::status, number, text});
    hub.turn();
    return hub.ranks(Clock::now()).ranks.size();
  };
  EXPECT_EQ(known_after(1), 1U);
  EXPECT_EQ(known_after(0), 0U) << "made before its node heard from the hub";
  EXPECT_EQ(known_after(1), 1U);
  EXPECT_EQ(known_after(1'000'000), 0U) << "sent by another hub";
  EXPECT_EQ(known_after(-1), 0U);
  EXPECT_EQ(known_after(1), 1U);
  connection.send({MessageKind::status, 1, "no report"});
  hub.turn();
  EXPECT_EQ(hub.ranks(Clock::now()).ranks.size(), 1U) << "the last one that could be read";
  EXPECT_TRUE(eventually([&] {
    hub.turn();
    connection.fill();
    const auto message = connection.next();
    return message && message->kind == MessageKind::alive && message->rank >= 2;
  })) << "the numbers go up";
}

TEST_F(TcpNodeLinkTest, OnlyTheLastWordsSayThatTheRanksOfANodeAreOver) {
  const auto hub = link(0);
  auto other = link(4);
  ASSERT_TRUE(reaches(*other, 4, *hub, 1));
  other->finish(quiet_rank(4), LastWords::of_one);
  other.reset();
  EXPECT_THAT(hub->others(Clock::now() + seconds(60)).ranks, SizeIs(0)) << "another guard follows";
  other = link(4);
  ASSERT_TRUE(reaches(*other, 5, *hub, 1));
  auto over = quiet_rank(4);
  over.ranks[0].state = watch::RankState::failed;
  other->finish(over, LastWords::of_last);
  other.reset();
  ASSERT_TRUE(eventually([&] { return !hub->others(Clock::now() + seconds(60)).ranks.empty(); }));
  const auto later = hub->others(Clock::now() + seconds(60)).ranks[0];
  EXPECT_EQ(later.state, watch::RankState::failed);
  EXPECT_GE(later.quiet, seconds(90)) << "since its end";
}

// Its task is the last one of the node that ends, and was not the first one.
TEST_F(TcpNodeLinkTest, LastWordsOfAGuardThatHadNoLink) {
  const auto hub = link(0);
  const auto first = link(4);
  ASSERT_TRUE(reaches(*first, 4, *hub, 1));
  const auto last = link(4);
  last->finish(quiet_rank(4), LastWords::of_last);
  EXPECT_TRUE(eventually([&] { return !hub->others(Clock::now() + seconds(60)).ranks.empty(); }));
}

// As a guard does that looks whether the step ends.
bool hears_end(const NodeLink& link, int code) {
  return eventually([&] {
    const auto end = link.step_end();
    return end && end->code == code;
  });
}

TEST_F(TcpNodeLinkTest, AllNodesHearThatTheStepEnds) {
  const auto hub = link(0);
  const auto one = link(4);
  const auto other = link(6);
  ASSERT_TRUE(reaches(*one, 4, *hub, 1));
  ASSERT_TRUE(reaches(*other, 6, *hub, 2));
  EXPECT_FALSE(hub->step_end());
  EXPECT_TRUE(one->is_step_end_told()) << "there is nothing to tell";
  one->end_step({Clock::now() + seconds(100), 3, false});
  EXPECT_TRUE(hears_end(*other, 3));
  EXPECT_TRUE(hears_end(*hub, 3));
  EXPECT_FALSE(other->step_end()->is_explained);
  EXPECT_GT(other->step_end()->at, Clock::now() + seconds(50));
  EXPECT_TRUE(eventually([&] { return one->is_step_end_told() && other->is_step_end_told(); }));
  hub->end_step({Clock::now(), 137});
  EXPECT_TRUE(hears_end(*one, 137));
  EXPECT_TRUE(hears_end(*other, 137));
  EXPECT_TRUE(other->step_end()->is_explained);
  EXPECT_LE(other->step_end()->at, Clock::now());
  EXPECT_FALSE(hub->is_step_end_told()) << "the step has eight ranks elsewhere";
  const auto late = link(8);
  EXPECT_TRUE(hears_end(*late, 137));
}

// While it knows that the step ends, ranks save their state.
TEST_F(TcpNodeLinkTest, HubSleepsAfterTheEndOfTheStep) {
  const auto processor_time = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto hub = link(0);
  const auto node = link(4);
  ASSERT_TRUE(reaches(*node, 4, *hub, 1));
  hub->end_step({Clock::now(), 3});
  ASSERT_TRUE(hears_end(*node, 3));
  const auto before = processor_time();
  std::this_thread::sleep_for(seconds(1));
  EXPECT_LT(processor_time() - before, std::chrono::milliseconds(200));
}

// Its tasks were the first to end, and another node's guard only starts.
TEST_F(TcpNodeLinkTest, LastGuardOfANodeTellsThatTheStepEnds) {
  constexpr std::uint32_t kOthers = 1;
  const auto linked = [&](std::uint32_t node) {
    return make_tcp_link({place, kKey, node, "node" + std::to_string(node), kOthers, seconds(120)});
  };
  auto hub = linked(0);
  hub->end_step({Clock::now(), 3});
  hub->finish(quiet_rank(0), LastWords::of_last_urgent);
  std::thread leaving([&hub] { hub.reset(); });
  auto node = linked(4);
  EXPECT_TRUE(hears_end(*node, 3)) << "the hub waits for it";
  node->publish(quiet_rank(4));
  leaving.join();
  node.reset();
  node = linked(4);
  node->end_step({Clock::now(), 4});
  node->finish(quiet_rank(4), LastWords::of_last_urgent);
  std::thread leaving_too([&node] { node.reset(); });
  hub = linked(0);
  EXPECT_TRUE(hears_end(*hub, 4)) << "the node looks for it";
  leaving_too.join();
}

TEST_F(TcpNodeLinkTest, HubDoesNotWaitForNodesThatKnowOrAreOver) {
  constexpr std::uint32_t kOthers = 2;
  const auto linked = [&](std::uint32_t node) {
    return make_tcp_link({place, kKey, node, "node" + std::to_string(node), kOthers});
  };
  const auto hub = linked(0);
  auto over = linked(4);
  ASSERT_TRUE(reaches(*over, 4, *hub, 1));
  over->finish(quiet_rank(4), LastWords::of_last);
  over.reset();
  hub->end_step({Clock::now(), 3});
  EXPECT_FALSE(hub->is_step_end_told());
  const auto other = linked(6);
  EXPECT_TRUE(eventually([&] {
    other->publish(quiet_rank(6));
    return hub->is_step_end_told();
  }));
}

TEST_F(TcpNodeLinkTest, FindsTheNextHub) {
  auto hub = link(0);
  const auto other = link(4);
  ASSERT_TRUE(reaches(*other, 4, *hub, 1));
  hub->finish({}, LastWords::of_one);
  ASSERT_TRUE(eventually([&] { return !other->is_connected(); }));
  hub = link(0);
  EXPECT_TRUE(reaches(*other, 4, *hub, 1));
}

// A program that accepts connections, and answers nothing.
TEST_F(TcpNodeLinkTest, PassesByAStrangerOnItsPort) {
  const Listener stranger = open_listener(place.ports[0]);
  ASSERT_TRUE(stranger.socket);
  const auto hub = link(0);
  const auto other = link(4);
  EXPECT_TRUE(reaches(*other, 4, *hub, 1));
}

TEST_F(TcpNodeLinkTest, RefusesAnotherStep) {
  const auto hub = link(0);
  const auto stranger = link(4, std::string(64, 'b'));
  stranger->publish(quiet_rank(4));
  const auto friendly = link(8);
  EXPECT_TRUE(reaches(*friendly, 8, *hub, 1));
  EXPECT_EQ(hub->others(Clock::now()).facts[0].rank, 8U);
  EXPECT_FALSE(stranger->is_connected());
  EXPECT_THAT(link(0, ""), IsNull());
  EXPECT_THAT(link(0, "no digits"), IsNull());
}

TEST_F(TcpNodeLinkTest, EndsSoonWithoutAHub) {
  for (int i = 0; i < 20; ++i) link(4);
}

}  // namespace
}  // namespace ddp::guard
