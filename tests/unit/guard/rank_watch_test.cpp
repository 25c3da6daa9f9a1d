// SPDX-License-Identifier: Apache-2.0
// The guards of one node, which share a record.
#include "spank_plugin/guard/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <set>

namespace ddp::guard {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Ranks = std::set<std::uint32_t>;

// Guards that report a stall of 3 seconds.
class Node {
 public:
  // `present` of `count` tasks, of a step of `tasks`, have a guard.
  Node(std::uint32_t present, std::uint32_t count, std::uint32_t tasks, bool ends = false) {
    for (std::uint32_t i = 0; i < present; ++i) {
      GuardOptions options;
      options.rank = i + 10;
      options.task_count = tasks;
      options.local_rank = i;
      options.local_task_count = count;
      options.stall = std::chrono::seconds(3);
      options.node = "node2";
      options.ends_on_stall = ends;
      guards_.emplace_back(options, record_);
    }
  }

  // A second later, in which the ranks `busy` have used a processor, and those `asleep` had no
  // guard that looked. Returns what each guard says.
  std::vector<std::string> second(const Ranks& busy, const Ranks& asleep = {}) {
    time_ += std::chrono::seconds(1);
    std::vector<std::string> said;
    for (std::uint32_t i = 0; i < guards_.size(); ++i) {
      Guard& guard = guards_[i];
      auto& task = guard.reading.processes.front();
      if (busy.contains(i)) task.cpu += std::chrono::seconds(1);
      guard.reading.time = time_;
      said.push_back(asleep.contains(i) ? "" : guard.watch.take(guard.reading));
    }
    return said;
  }
  // The last of several seconds.
  std::vector<std::string> seconds(int count, const Ranks& busy, const Ranks& asleep = {}) {
    for (int i = 1; i < count; ++i) EXPECT_THAT(second(busy, asleep), Each(IsEmpty())) << i;
    return second(busy, asleep);
  }

  RankWatch& watch(std::uint32_t i) { return guards_[i].watch; }
  void put(std::uint32_t i, char state) { guards_[i].reading.processes.front().state = state; }
  void stop(std::uint32_t i) { put(i, 'T'); }
  RankSlot& slot(std::uint32_t i) { return record_.slot(i); }

 private:
  struct Guard {
    Guard(const GuardOptions& its_options, NodeRecord& record)
        : options(its_options), watch(7, options, record) {
      reading.processes.resize(1);
      reading.processes.front().cpu = std::chrono::seconds(1);
      reading.processes.front().state = 'S';
      reading.processes.front().pid = 7;
    }
    GuardOptions options;
    watch::Reading reading;
    RankWatch watch;
  };
  NodeRecord record_{-1};
  std::deque<Guard> guards_;
  Clock::time_point time_ = Clock::now();
};

// All guards have made a first reading.
Node node_of(std::uint32_t ranks) {
  return {ranks, ranks, ranks};
}

TEST(RankWatch, LetsTheFirstGuardSpeak) {
  Node node = node_of(3);
  EXPECT_THAT(node.seconds(4, {1}), Each(IsEmpty()));
  EXPECT_THAT(node.seconds(4, {}),
              ElementsAre(StartsWith("no rank has made progress for 3 s"), "", ""));
  EXPECT_THAT(node.seconds(60, {}), Each(IsEmpty()));
  EXPECT_THAT(node.seconds(7, {2}),
              ElementsAre(StartsWith("the ranks make progress again"), "", ""));
}

TEST(RankWatch, LetsTheNextOneSpeakForARankThatHasEnded) {
  Node node = node_of(3);
  node.seconds(3, {});
  node.watch(0).end(0);
  node.watch(1).end(256);
  const Ranks over{0, 1};
  EXPECT_THAT(node.seconds(2, {}, over).back(),
              HasSubstr("; rank 11 has failed; rank 10 has ended with 0; "));
}

TEST(RankWatch, KnowsThatARankIsOverWhoseGuardIsGone) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  Node node = node_of(2);
  node.second({});
  node.slot(0).guard = gone;
  EXPECT_THAT(node.seconds(5, {}, {0}), Each(IsEmpty())) << "perhaps it only sleeps";
  EXPECT_THAT(node.second({}, {0}).back(), HasSubstr("; rank 10 has failed; "));
  EXPECT_EQ(node.second({}, {0}).back(), "rank 10 (node2) was killed, with its guard");
  EXPECT_THAT(node.seconds(9, {}, {0}), Each(IsEmpty()));
}

TEST(RankWatch, SeesWhetherATaskThatIsToldToEndStandsStill) {
  Node node = node_of(1);
  node.seconds(3, {});
  EXPECT_FALSE(node.watch(0).stands_still()) << "it was not told";
  node.watch(0).look_closely();
  for (int i = 0; i < 6; ++i) node.second({});
  EXPECT_FALSE(node.watch(0).stands_still()) << "it may wait for an answer";
  node.second({0});
  EXPECT_FALSE(node.watch(0).stands_still()) << "it saves its state";
  for (int i = 0; i < 7; ++i) node.second({});
  EXPECT_TRUE(node.watch(0).stands_still());
  for (const char state : {'R', 'T', 'D'}) {
    node.put(0, state);
    node.second({});
    EXPECT_FALSE(node.watch(0).stands_still()) << state;
  }
  node.put(0, 'S');
  node.second({});
  EXPECT_TRUE(node.watch(0).stands_still());
  node.second({0});
  EXPECT_FALSE(node.watch(0).stands_still());
}

TEST(RankWatch, EndsTheStepOfRanksThatStandStill) {
  Node node = node_of(2);
  node.second({});
  EXPECT_THAT(node.seconds(4, {}).front(), StartsWith("no rank"));
  EXPECT_FALSE(node.watch(0).step_end());
  Node ending(2, 2, 2, true);
  ending.second({});
  EXPECT_THAT(ending.seconds(3, {0}), Each(IsEmpty()));
  EXPECT_FALSE(ending.watch(1).step_end());
  EXPECT_THAT(ending.seconds(4, {}).front(), testing::EndsWith("; ending the step"));
  ASSERT_TRUE(ending.watch(1).step_end());
  EXPECT_EQ(ending.watch(1).step_end()->code, 0);
}

// Of another node than the hub's; notes its last words.
class NotingLink final : public NodeLink {
 public:
  explicit NotingLink(std::vector<LastWords>& words) : words_(words) {}
  bool is_hub() const noexcept override { return false; }
  void finish(const watch::RanksReport&, LastWords kind) override { words_.push_back(kind); }
  void end_step(const StepEnd&) override {}
  std::optional<StepEnd> step_end() const override { return std::nullopt; }
  bool is_step_end_told() const override { return true; }
  watch::RanksReport others(Clock::time_point) const override { return {}; }
  void ask() override {}
  void publish(const watch::RanksReport&) override {}
  bool is_connected() const noexcept override { return true; }
  bool was_asked() noexcept override { return false; }

 private:
  std::vector<LastWords>& words_;
};

// Two ranks that have both failed: the guard of one still waits for the reader of its output.
TEST(RankWatch, LastGuardToLeaveHasTheLastWords) {
  std::vector<NodeLink::LastWords> words;
  NodeRecord record(-1);
  record.set_key("key");
  GuardOptions options;
  options.rank = 2;
  options.task_count = 4;
  options.local_task_count = 2;
  options.hub = {{"10.0.0.1"}, {4711}};
  GuardOptions other = options;
  other.rank = 3;
  other.local_rank = 1;
  const auto noting = [&words](const LinkOptions&) { return std::make_unique<NotingLink>(words); };
  RankWatch first(7, options, record, noting);
  RankWatch second(8, other, record, noting);
  first.end(256);
  second.end(256);
  second.leave();
  EXPECT_THAT(words, IsEmpty()) << "the first one may have something to say";
  first.leave();
  EXPECT_THAT(words, ElementsAre(NodeLink::LastWords::of_last));
}

TEST(RankWatch, SaysNothingWhileAGuardIsMissingOrAsleep) {
  Node missing(2, 3, 3);
  EXPECT_THAT(missing.seconds(9, {}), Each(IsEmpty()));
  Node node = node_of(2);
  node.second({});
  EXPECT_THAT(node.seconds(60, {}, {1}), Each(IsEmpty()));
}

TEST(RankWatch, DoesNotTakeAPauseOfTheGuardsForProgress) {
  Node node = node_of(2);
  node.second({});
  EXPECT_THAT(node.seconds(4, {}).front(), StartsWith("no rank"));
  EXPECT_THAT(node.seconds(30, {}, {0, 1}), Each(IsEmpty()));
  EXPECT_THAT(node.seconds(30, {}), Each(IsEmpty()));
}

TEST(RankWatch, SaysOnlyOfAStoppedRankThatOneNodeOfSeveralWaits) {
  Node node(2, 2, 4);
  node.second({});
  EXPECT_THAT(node.seconds(9, {}), Each(IsEmpty())) << "a rank elsewhere may work";
  node.stop(1);
  EXPECT_THAT(
      node.seconds(3, {}),
      ElementsAre(StartsWith("rank 11 has been stopped for 2 s; to continue, run kill -CONT 7 "
                             "on node2"),
                  ""));
}

TEST(RankWatch, IsOffOnANodeWithTooManyTasks) {
  EXPECT_EQ(Node(1, 1025, 1025).watch(0).next_look(), Deadline::max());
  EXPECT_LT(Node(1, 1024, 1024).watch(0).next_look(), Deadline::max());
}

}  // namespace
}  // namespace ddp::guard
