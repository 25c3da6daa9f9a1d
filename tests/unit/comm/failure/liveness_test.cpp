// SPDX-License-Identifier: Apache-2.0
// Tests which ranks count as lost, with tables of rank states. With the default limits, a rank is
// silent after 8 s.
#include "ddp_runtime/comm/failure/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

SignsOfLife rank_on(int rank, const std::string& node, std::chrono::milliseconds silent,
                    bool acknowledges = false) {
  return {rank, node + ", process " + std::to_string(100 + rank), silent, acknowledges};
}

struct LivenessCase {
  std::string what;
  std::vector<SignsOfLife> ranks;
  bool stalled = false;
  std::string lost;  // "1 stopped, 2 unreachable"
};

TEST(Liveness, FindsLostRanks) {
  const std::vector<LivenessCase> cases{
      {"all ranks healthy",
       {rank_on(1, "a", 900ms, true), rank_on(2, "b", 200ms, true)},
       false,
       ""},
      {"a long wait alone", {rank_on(1, "a", 900ms, true), rank_on(2, "b", 200ms, true)}, true, ""},
      {"a stop of 3 s", {rank_on(1, "a", 3s, true)}, true, ""},
      {"a stop of 7 s", {rank_on(1, "a", 7s, true)}, true, ""},
      {"a stopped process",
       {rank_on(1, "a", 8s, true), rank_on(2, "b", 1s, true)},
       true,
       "1 stopped"},
      {"a stopped process that no rank waits for", {rank_on(1, "a", 1h, true)}, false, ""},
      {"a machine that vanished",
       {rank_on(1, "a", 1s, true), rank_on(2, "b", 8s), rank_on(3, "b", 7s),
        rank_on(4, "c", 300ms, true)},
       true,
       "2 unreachable, 3 unreachable"},
      {"the management network is down for a minute, and training continues",
       {rank_on(1, "a", 60s), rank_on(2, "b", 60s), rank_on(3, "b", 59s)},
       false,
       ""},
      {"the link of one machine is down, but its data uses another network",
       {rank_on(1, "a", 500ms, true), rank_on(2, "b", 25s)},
       false,
       ""},
      {"one stopped, another machine lost",
       {rank_on(1, "a", 9s, true), rank_on(2, "b", 9s)},
       true,
       "1 stopped, 2 unreachable"},
      {"one lost, another a little late",
       {rank_on(1, "a", 9s), rank_on(2, "b", 5s)},
       true,
       "1 unreachable"},
      {"no other ranks", {}, true, ""},
  };
  for (const auto& c : cases) {
    std::string lost;
    for (const auto& loss : find_lost(c.ranks, c.stalled, {})) {
      lost += (lost.empty() ? "" : ", ") + std::to_string(loss.rank) + " " + to_string(loss.kind);
    }
    EXPECT_EQ(lost, c.lost) << c.what;
  }
}

TEST(Liveness, HeartbeatsSlowDownInALargeWorldWithinLimits) {
  EXPECT_EQ(scaled({}, 2).heartbeat, 1s);
  EXPECT_EQ(scaled({}, 2000).heartbeat, 1s);
  EXPECT_EQ(scaled({}, 3000).heartbeat, 1500ms);
  EXPECT_EQ(scaled({}, 1'000'000).heartbeat, 2s);
  EXPECT_EQ(scaled({}, 1'000'000).silence, 8s);
}

TEST(Liveness, LimitsScaleWithTheSilence) {
  for (const auto silence : {1000ms, 2000ms, 7000ms, 8000ms, 3'600'000ms}) {
    const LivenessLimits limits = limits_for(silence);
    EXPECT_EQ(limits.silence, silence);
    EXPECT_LE(8 * limits.heartbeat, silence);
    EXPECT_LE(2 * limits.reconnect, silence);
    EXPECT_LE(limits.heartbeat, LivenessLimits{}.heartbeat);
    EXPECT_LE(limits.reconnect, LivenessLimits{}.reconnect);
  }
  EXPECT_EQ(limits_for(8s).heartbeat, LivenessLimits{}.heartbeat) << "the default";
  EXPECT_EQ(limits_for(8s).reconnect, LivenessLimits{}.reconnect);
  EXPECT_EQ(limits_for(8s).exit, LivenessLimits{}.exit);
  EXPECT_GT(limits_for(120s).exit, 120s);
}

TEST(Liveness, DescribesLossesByNodeAndKind) {
  const std::vector<Loss> one{{1, "node2, process 7", LossKind::killed}};
  EXPECT_THAT(describe(one, 8s),
              testing::StartsWith("rank 1 (node2, process 7) exited unexpectedly: it was killed"));

  std::vector<Loss> node;
  for (int rank = 13; rank > 3; --rank) node.push_back({rank, "n3, process 1", LossKind::killed});
  EXPECT_THAT(describe(node, 8s),
              testing::StartsWith("ranks 4, 5, 6, 7, 8, 9, 10, 11 and 2 more on n3 exited "
                                  "unexpectedly: they were killed or crashed; check their"));

  const std::vector<Loss> two{{4, "b, process 4", LossKind::stopped},
                              {2, "a, process 3", LossKind::unreachable},
                              {1, "a, process 2", LossKind::unreachable}};
  const auto text = describe(two, 8s);
  EXPECT_THAT(text, testing::StartsWith("ranks 1 and 2 on a have been silent for 8 s, and the "
                                        "machine does not answer"));
  EXPECT_THAT(text, HasSubstr("; rank 4 (b, process 4) has been silent for 8 s, but the machine"));
}

TEST(Liveness, NodeIsTheFirstWordOfAProcessName) {
  EXPECT_EQ(node_of("node2, process 4711"), "node2");
  EXPECT_EQ(node_of("node2"), "node2");
  EXPECT_EQ(node_of(""), "");
}

// The thread of a channel, as far as heartbeats go.
class Beating : public ChannelEnd {
 public:
  using ChannelEnd::ChannelEnd;
  // What the thread does when it gets a processor.
  bool beats() {
    clock_.look();
    return tick_is_due() && heartbeat_is_due();
  }
};

TEST(Liveness, ARankThatCouldNotRunIsHeardOfAtOnce) {
  FailureState failures;
  ChannelOptions options;
  options.liveness.heartbeat = 200ms;
  Beating channel(failures, options);
  ASSERT_TRUE(channel.beats());
  EXPECT_FALSE(channel.beats());
  std::this_thread::sleep_for(210ms);  // of which a RunningClock counts 100
  EXPECT_TRUE(channel.beats());
}

}  // namespace
}  // namespace ddp::comm
