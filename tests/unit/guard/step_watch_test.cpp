// SPDX-License-Identifier: Apache-2.0
// What the first guard of a node concludes and says, with a link that the test plays.
#include "spank_plugin/guard/step_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::guard {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

watch::RanksReport rank_of(std::uint32_t rank, std::optional<Clock::duration> quiet,
                           const std::string& node) {
  watch::RanksReport one;
  one.ranks = {{watch::RankState::running, quiet, {}, {}}};
  one.facts = {{rank, 7, 7, node}};
  if (quiet) one.waits = {{rank, "locks_lock_inode_wait", ""}};
  return one;
}

// What a link hears and does.
struct Played {
  bool is_hub = true;
  bool is_connected = true;
  bool was_asked = false;
  watch::RanksReport others = {};
  int asks = 0;
  int published = 0;
  int links = 0;
  int last_words = 0;
  bool is_urgent = false;
  std::optional<StepEnd> heard_end = {};
  std::optional<StepEnd> told_end = {};
};

class PlayedLink final : public NodeLink {
 public:
  explicit PlayedLink(Played& played) : played_(played) { ++played_.links; }
  ~PlayedLink() override { --played_.links; }
  bool is_hub() const noexcept override { return played_.is_hub; }
  watch::RanksReport others(Clock::time_point) const override { return played_.others; }
  void finish(const watch::RanksReport&, LastWords kind) override {
    played_.last_words += kind != LastWords::of_one;
    played_.is_urgent = kind == LastWords::of_last_urgent;
  }
  void ask() override { ++played_.asks; }
  void publish(const watch::RanksReport&) override { ++played_.published; }
  bool is_connected() const noexcept override { return played_.is_connected; }
  bool was_asked() noexcept override { return played_.was_asked; }
  void end_step(const StepEnd& end) override { played_.told_end = end; }
  std::optional<StepEnd> step_end() const override { return played_.heard_end; }
  bool is_step_end_told() const override { return played_.told_end && played_.is_connected; }

 private:
  Played& played_;
};

// A node with one of two tasks, on which a stall is told after a minute.
class StepWatchTest : public testing::Test {
 protected:
  StepWatchTest() {
    options.task_count = 2;
    options.stall = seconds(60);
    options.hub = {{"10.0.0.1"}, {4711}};
    record.set_key("key");
    step.speak_for_node(0);
  }
  StepWatch::Outcome with(std::optional<Clock::duration> own,
                          std::optional<Clock::duration> other) {
    played.others = rank_of(1, other, "node2");
    return step.update(rank_of(0, own, "node1"), now += seconds(1));
  }

  Played played;
  GuardOptions options;
  NodeRecord record{-1};
  MakeLink make_link = [this](const LinkOptions& link) {
    asked_for = link;
    return std::make_unique<PlayedLink>(played);
  };
  StepWatch step{options, record, make_link};
  LinkOptions asked_for;
  Clock::time_point now = Clock::now();
};

TEST_F(StepWatchTest, OpensALinkOnlyIfThereAreOtherNodesAndAHub) {
  EXPECT_EQ(played.links, 1);
  EXPECT_EQ(asked_for.others, 1U);
  EXPECT_EQ(asked_for.key, "key");
  step.speak_for_node(0);
  EXPECT_EQ(played.links, 1) << "there is one already";
  step.stop_speaking();
  EXPECT_EQ(played.links, 0);
  options.hub = {};
  step.speak_for_node(0);
  EXPECT_EQ(played.links, 0);
  options.hub.ports = {4711};
  step.speak_for_node(1);
  EXPECT_EQ(played.links, 0) << "where the hub is, is not known";
  step.speak_for_node(0);
  EXPECT_EQ(played.links, 1) << "it is here";
  step.stop_speaking();
  options.hub = {{"10.0.0.1"}, {4711}};
  options.local_task_count = 2;
  step.speak_for_node(0);
  EXPECT_EQ(played.links, 0);
}

TEST_F(StepWatchTest, ReachesAllNodesOnlyWithAKeyAndAHub) {
  EXPECT_TRUE(step.can_reach_all());
  EXPECT_FALSE(StepWatch(options, record, {}).can_reach_all());
  record.set_key("");
  EXPECT_FALSE(step.can_reach_all());
  options.local_task_count = 2;
  EXPECT_FALSE(step.can_reach_all()) << "the guards of the node do not share memory";
  const FileDescriptor file = make_node_record();
  NodeRecord shared(file.get());
  EXPECT_TRUE(StepWatch(options, shared, {}).can_reach_all()) << "there are no other nodes";
  options.local_task_count = 1;
  record.set_key("key");
  options.hub.addresses.clear();
  EXPECT_TRUE(step.can_reach_all()) << "the hub is here";
  record.slot(0).rank = 1;
  EXPECT_FALSE(step.can_reach_all());
  options.hub = {};
  record.slot(0).rank = 0;
  EXPECT_FALSE(step.can_reach_all());
}

TEST_F(StepWatchTest, HubSpeaksWhenNoRankOfTheStepMakesProgress) {
  EXPECT_THAT(with(seconds(100), std::nullopt).speech, IsEmpty()) << "rank 1 works";
  EXPECT_THAT(with(seconds(100), seconds(59)).speech, IsEmpty());
  EXPECT_THAT(with(seconds(101), seconds(60)).speech,
              StartsWith("no rank has made progress for 60 s (processor, files, TCP): all wait "
                         "for a file lock; "));
  EXPECT_THAT(with(seconds(102), seconds(61)).speech, IsEmpty()) << "it has been told";
}

TEST_F(StepWatchTest, EndsTheStepForAStallIfThatIsWanted) {
  EXPECT_FALSE(with(seconds(100), seconds(60)).ends_step);
  options.ends_on_stall = true;
  StepWatch ending(options, record, make_link);
  ending.speak_for_node(0);
  EXPECT_FALSE(ending.update(rank_of(0, seconds(59), "node1"), now).ends_step);
  const auto outcome = ending.update(rank_of(0, seconds(60), "node1"), now);
  EXPECT_TRUE(outcome.ends_step);
  EXPECT_THAT(outcome.speech, testing::EndsWith("; ending the step"));
}

TEST_F(StepWatchTest, PassesTheEndOfTheStepOnOnce) {
  step.exchange_step_end();
  EXPECT_FALSE(record.step_end() || played.told_end);
  played.heard_end = StepEnd{now + seconds(5), 3};
  step.exchange_step_end();
  ASSERT_TRUE(record.step_end());
  EXPECT_EQ(record.step_end()->code, 3);
  record.end_step({now, 4});
  step.exchange_step_end();
  ASSERT_TRUE(played.told_end);
  EXPECT_EQ(played.told_end->code, 4);
  EXPECT_TRUE(record.is_step_end_told());
  played.told_end.reset();
  step.exchange_step_end();
  EXPECT_FALSE(played.told_end);
}

TEST_F(StepWatchTest, LastWordsAreUrgentIfOtherNodesKnowOfNoEnd) {
  step.finish(rank_of(0, seconds(1), "node1"), true);
  EXPECT_EQ(played.last_words, 1);
  EXPECT_FALSE(played.is_urgent) << "the step does not end";
  played.is_connected = false;
  record.end_step({now + seconds(10), 1, false});
  step.finish(rank_of(0, seconds(1), "node1"), true);
  EXPECT_TRUE(played.is_urgent);
  played.is_connected = true;
  step.finish(rank_of(0, seconds(1), "node1"), true);
  EXPECT_FALSE(played.is_urgent);
  played.is_connected = false;
  record.end_step({now, 3});
  step.finish(rank_of(0, seconds(1), "node1"), true);
  EXPECT_FALSE(played.is_urgent) << "they know of a later one";
}

TEST_F(StepWatchTest, HubSaysNothingWhileItDoesNotHearFromAllRanks) {
  played.others = {};
  const auto own = rank_of(0, seconds(3600), "node1");
  EXPECT_THAT(step.update(own, now).speech, IsEmpty());
  auto more = rank_of(1, seconds(3600), "node2");
  more.append(rank_of(2, seconds(3600), "node2"));
  played.others = more;
  EXPECT_THAT(step.update(own, now).speech, IsEmpty()) << "more than the step has";
  played.others = rank_of(0, seconds(3600), "node2");
  EXPECT_THAT(step.update(own, now).speech, IsEmpty()) << "one is there twice";
}

TEST_F(StepWatchTest, HubAsksForPlacesInTime) {
  EXPECT_FALSE(with(seconds(50), seconds(20)).wants_places);
  EXPECT_EQ(played.asks, 0);
  EXPECT_TRUE(with(seconds(80), seconds(50)).wants_places);
  EXPECT_EQ(played.asks, 1);
}

TEST_F(StepWatchTest, SaysThatARankOfAnotherNodeIsOver) {
  played.others = rank_of(1, std::nullopt, "node2");
  played.others.ranks[0].state = watch::RankState::finished;
  EXPECT_THAT(step.update(rank_of(0, seconds(60), "node1"), now).speech,
              HasSubstr("; rank 1 has ended with 0; the step still runs"));
}

TEST_F(StepWatchTest, RemembersForTheNextGuardHowOthersEnded) {
  options.task_count = 3;
  played.others = rank_of(1, std::nullopt, "node2");
  played.others.append(rank_of(2, std::nullopt, "node2"));
  played.others.ranks[0].state = watch::RankState::finished;
  played.others.ranks[1].state = watch::RankState::failed;
  EXPECT_THAT(step.update(rank_of(0, std::nullopt, "node1"), now).speech, IsEmpty());
  step.stop_speaking();
  played.others = {};
  StepWatch next(options, record, make_link);
  next.speak_for_node(0);
  EXPECT_THAT(next.update(rank_of(0, seconds(60), "node1"), now).speech,
              HasSubstr("; rank 2 has failed; rank 1 has ended with 0; the step still runs"));
}

TEST_F(StepWatchTest, NamesAStoppedRankAlsoWhileSomeAreNotKnown) {
  options.task_count = 3;
  played.others = rank_of(1, seconds(100), "node2");
  played.others.ranks[0].stopped = seconds(100);
  EXPECT_THAT(
      step.update(rank_of(0, seconds(100), "node1"), now).speech,
      HasSubstr("rank 1 has been stopped for 100 s; to continue, run kill -CONT 7 on node2"));
}

TEST_F(StepWatchTest, SortsTheRanksOfAllNodes) {
  options.task_count = 3;
  played.others = rank_of(1, seconds(60), "node2");
  auto own = rank_of(2, seconds(60), "node1");
  own.append(rank_of(0, seconds(60), "node1"));
  for (auto* report : {&own, &played.others}) {
    for (auto& wait : report->waits) wait.channel = "rank" + std::to_string(wait.rank);
  }
  EXPECT_THAT(
      step.update(own, now).speech,
      HasSubstr(": rank 0 waits for rank0, rank 1 waits for rank1, rank 2 waits for rank2; "));
}

TEST_F(StepWatchTest, LeavesTheWordToTheHub) {
  played.is_hub = false;
  EXPECT_THAT(with(seconds(100), seconds(100)).speech, IsEmpty());
  EXPECT_EQ(played.published, 1);
  EXPECT_FALSE(with(seconds(100), seconds(100)).wants_places);
  played.was_asked = true;
  EXPECT_TRUE(with(seconds(100), seconds(100)).wants_places);
}

TEST_F(StepWatchTest, SaysOfAStoppedRankByItselfIfThereIsNoHub) {
  played.is_hub = false;
  played.is_connected = false;
  auto own = rank_of(0, seconds(100), "node1");
  EXPECT_THAT(step.update(own, now).speech, IsEmpty()) << "a rank elsewhere may work";
  own.ranks[0].stopped = seconds(100);
  EXPECT_THAT(step.update(own, now).speech, StartsWith("rank 0 has been stopped for "));
}

}  // namespace
}  // namespace ddp::guard
