// SPDX-License-Identifier: Apache-2.0
// What the supervisor makes of an agent's words and of its silence. The agent is a connection of
// this test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/greeting.h"
#include "base/deadline.h"
#include "base/errors.h"
#include "base/secret/key.h"
#include "base/text.h"
#include "ddp_runtime/elastic/event_json.h"
#include "ddp_runtime/elastic/run/head.h"

namespace ddp::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kGenerationOfAgent = 1;
constexpr int kRankOfAgent = 3;

class HeadAndAgent : public testing::Test {
 protected:
  HeadAndAgent() {
    const auto address = head_.address();
    const auto colon = address.rfind(':');
    connection_ = Connection::open({"127.0.0.1"}, *parse_decimal(address.substr(colon + 1), 65535),
                                   seconds(60));
    const nlohmann::json who = {
        {"generation", kGenerationOfAgent}, {"node", "n1"}, {"step", "7.0"}};
    if (!connection_) throw RuntimeError("cannot connect to " + address);
    std::thread agent([&] {
      greeted_ = greet(*connection_, RankGreeting(key_, kRankOfAgent, who.dump()), seconds(60));
    });
    const auto end = Clock::now() + seconds(120);
    while (!head_.has_agents(kGenerationOfAgent) && Clock::now() < end) {
      head_.wait(Clock::now() + milliseconds(20), {});
    }
    agent.join();
  }

  void say(const Event& event) {
    connection_->send({MessageKind::status, kRankOfAgent, json_of(event).dump()});
  }
  void beat() { connection_->send({MessageKind::alive, kRankOfAgent, ""}); }

  // All events of this time.
  std::vector<Event> events_of(milliseconds time) {
    std::vector<Event> all;
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
      for (auto& event : head_.wait(end, {})) all.push_back(std::move(event));
    }
    return all;
  }

  // Whether such an event comes, on however slow a machine.
  template <class Wanted>
  bool hears() {
    const auto end = Clock::now() + seconds(120);
    while (Clock::now() < end) {
      for (const auto& event : head_.wait(end, {})) {
        if (std::holds_alternative<Wanted>(event)) return true;
      }
    }
    return false;
  }

  Key key_ = random_key();
  Head head_{key_};
  std::optional<Connection> connection_;
  Greeted greeted_ = Greeted::silent;
};

// Longer than an agent may be quiet without suspicion, and shorter than what loses its node.
constexpr milliseconds kQuiet{5000};

template <class Wanted>
std::size_t count_of(const std::vector<Event>& events) {
  return static_cast<std::size_t>(std::ranges::count_if(
      events, [](const Event& event) { return std::holds_alternative<Wanted>(event); }));
}

TEST_F(HeadAndAgent, AnAgentThatIsHeardAgainTakesBackItsSilence) {
  ASSERT_EQ(greeted_, Greeted::welcome);
  EXPECT_EQ(count_of<RankSilent>(events_of(kQuiet)), 1U);
  beat();
  EXPECT_TRUE(hears<RankAnswered>());
}

// The agent can be late without any help of its program, which is still stopped.
TEST_F(HeadAndAgent, ALateHeartbeatDoesNotTakeBackThatItsProgramIsStopped) {
  ASSERT_EQ(greeted_, Greeted::welcome);
  say(RankSilent{kGenerationOfAgent, kRankOfAgent});
  events_of(kQuiet);
  beat();
  EXPECT_EQ(count_of<RankAnswered>(events_of(milliseconds(300))), 0U);
  say(RankAnswered{kGenerationOfAgent, kRankOfAgent});
  EXPECT_TRUE(hears<RankAnswered>());
}

}  // namespace
}  // namespace ddp::elastic
