// SPDX-License-Identifier: Apache-2.0
// Whatever happens, in whatever order: properties that hold after each event.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/event_json.h"
#include "ddp_runtime/elastic/supervisor.h"

namespace ddp::elastic {
namespace {

Settings settings_of(std::mt19937& random) {
  const auto between = [&random](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  Settings settings;
  settings.min_nodes = static_cast<std::size_t>(between(1, 3));
  settings.max_nodes = settings.min_nodes + static_cast<std::size_t>(between(0, 2));
  settings.ranks_per_node = between(1, 3);
  settings.max_restarts = between(0, 30);
  settings.wait_for_nodes = between(0, 1) == 0 ? 600 : 20;
  settings.check_nodes = between(0, 3) > 0;
  settings.can_requeue = between(0, 1) == 0;
  return settings;
}

// Makes events at random, most of which could be true, and checks the actions.
class World {
 public:
  explicit World(unsigned seed)
      : random_(seed), settings_(settings_of(random_)), supervisor_(settings_, nodes_) {
    tell(Begin{});
  }

  bool is_done() const { return supervisor_.phase() == Phase::done; }
  bool saves() const { return saves_; }
  Seconds now() const { return now_; }

  void make_event() {
    now_ += std::exponential_distribution<Seconds>(2.0)(random_);
    switch (pick(16)) {
      case 0:
        return tell(NodeLost{any_node(), "silent"});
      case 1:
        return tell(NodeUp{any_node()});
      case 2:
        return end_rank({any_generation(), any_rank(), 1, 0, false});
      case 3:
        return end_rank({any_generation(), any_rank(), 0, pick(2) == 0 ? 9 : 11, pick(3) == 0});
      case 4:
        return end_rank({any_generation(), any_rank(), pick(8) == 0 ? 75 : 0, 0, false});
      case 5:
        return tell(Told{any_generation(), any_rank(), "error " + std::to_string(pick(3))});
      case 6:
        return tell(RankSilent{any_generation(), any_rank()});
      case 7:
        return tell(RankAnswered{any_generation(), any_rank()});
      case 8:
        return tell(Kept{
            any_generation(), {pick(3) == 0 ? Tier::disk : Tier::memory, step_}, pick(3) == 0});
      case 9:
        return end_executor();
      case 10:
        return answer_check();
      case 11:
        return pick(100) == 0 ? tell(Signaled{15}) : tell(Tick{});
      case 12:
        return tell(RankReady{any_generation(), any_rank()});
      case 13:
        return tell(Progress{any_generation(), ++step_});
      default:
        return tell(Tick{});
    }
  }

  // Nothing fails any more: checks are answered, processes end well.
  void make_peace() {
    for (const auto& node : nodes_) tell(NodeUp{node});
    now_ += 0.5;
    tell(Tick{});
    answer_check();
    if (!live_) return;
    if (stopping_) return end_executor();
    for (int rank = 0; rank < ranks(); ++rank) end_rank({*live_, rank, 0, 0, false});
    end_executor();
  }

 private:
  int pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  std::string any_node() {
    return nodes_[static_cast<std::size_t>(pick(static_cast<int>(nodes_.size())))];
  }
  // Mostly the current one, sometimes an older one.
  int any_generation() { return supervisor_.generation() - (pick(5) == 0 ? 1 : 0); }
  int ranks() const {
    return static_cast<int>(supervisor_.members().size()) * settings_.ranks_per_node;
  }
  int any_rank() { return pick(std::max(ranks(), 1)); }

  void end_rank(const RankEnded& ended) {
    if (live_ && ended.generation == *live_) ended_.insert(ended.rank);
    tell(ended);
  }

  // Only processes that were asked to end, or have ended, are gone.
  void end_executor() {
    if (!live_ || (!stopping_ && static_cast<int>(ended_.size()) < ranks())) return;
    const int generation = *live_;
    live_.reset();
    tell(ExecutorGone{generation});
  }

  void answer_check() {
    if (checks_.empty()) return;
    const auto node = *checks_.begin();
    checks_.erase(node);
    tell(Checked{node, pick(4) > 0, "bad"});
  }

  void tell(const Event& event) {
    const bool was_done = is_done();
    const auto actions = supervisor_.handle(event, now_);
    if (was_done) {
      ASSERT_TRUE(actions.empty()) << json_of(event);
    }
    if (const auto generation = generation_of(event);
        generation && *generation != supervisor_.generation()) {
      ASSERT_TRUE(actions.empty()) << "an action for an old generation: " << json_of(event);
    }
    for (const auto& action : actions) {
      SCOPED_TRACE(json_of(event).dump() + " > " + json_of(action).dump());
      std::visit([this](const auto& one) { verify(one); }, action);
    }
    ASSERT_GE(supervisor_.restarts_left(), 0);
    ASSERT_LE(supervisor_.restarts_left(), settings_.max_restarts);
  }

  std::optional<int> generation_of(const Event& event) const {
    const auto object = json_of(event);
    if (!object.contains("generation")) return std::nullopt;
    // The event may have started the next one.
    const int generation = object.at("generation");
    return generation == supervisor_.generation() - 1 && starting_ ? supervisor_.generation()
                                                                   : generation;
  }

  // What is left 30 s after SIGKILL is stuck in the kernel, and cannot do anything any more.
  bool has_live() const { return live_ && now_ < stuck_from_; }

  void verify(const Start& start) {
    ASSERT_FALSE(has_live()) << "two generations";
    ASSERT_FALSE(saves_) << "a start after the last one";
    ASSERT_EQ(start.generation, last_ + 1);
    if (start.save) {
      ASSERT_EQ(start.restore.tier, Tier::memory);
      ASSERT_GE(start.nodes.size(), 1U);
    } else {
      ASSERT_GE(start.nodes.size(), settings_.min_nodes);
    }
    ASSERT_LE(start.nodes.size(), settings_.max_nodes);
    ASSERT_EQ(std::set(start.nodes.begin(), start.nodes.end()).size(), start.nodes.size());
    for (const auto& node : start.nodes) {
      ASSERT_LE(excluded_[node], now_) << node << " is excluded";
    }
    saves_ = start.save;
    last_ = start.generation;
    live_ = start.generation;
    starting_ = true;
    stopping_ = false;
    stuck_from_ = kForever;
    ended_.clear();
  }
  void verify(const Stop& stop) {
    ASSERT_TRUE(live_ && *live_ == stop.generation);
    ASSERT_FALSE(stopping_) << "a second stop";
    stopping_ = true;
  }
  void verify(const Kill& kill) {
    ASSERT_TRUE(live_ && *live_ == kill.generation);
    stopping_ = true;
    stuck_from_ = now_ + 30;
  }
  void verify(const Check& check) {
    ASSERT_FALSE(saves_) << "no node is chosen any more";
    checks_.insert(check.node);
  }
  void verify(const Exclude& exclude) {
    ASSERT_GT(exclude.until, now_);
    excluded_[exclude.node] = exclude.until;
  }
  void verify(const Requeue& /*requeue*/) { ASSERT_FALSE(has_live()); }
  void verify(const Finish& finish) {
    if (finish.code == 0) {
      ASSERT_EQ(static_cast<int>(ended_.size()), ranks());
    }
    ASSERT_TRUE(is_done());
  }
  void verify(const Note& note) { ASSERT_FALSE(note.text.empty()); }

  std::mt19937 random_;
  std::vector<std::string> nodes_ = {"a", "b", "c", "d", "e"};
  Settings settings_;
  Supervisor supervisor_;
  Seconds now_ = 0;
  std::int64_t step_ = 0;
  int last_ = 0;
  bool saves_ = false;  // the last start is the one that saves
  std::optional<int> live_;
  bool stopping_ = false;
  Seconds stuck_from_ = kForever;
  bool starting_ = false;
  std::set<int> ended_;
  std::set<std::string> checks_;
  std::map<std::string, Seconds> excluded_;
};

TEST(Supervisor, KeepsItsPromisesInAnyOrderOfEvents) {
#ifdef SLURM_DDP_SANITIZED
  constexpr int kRuns = 100;
#else
  constexpr int kRuns = 500;
#endif
  constexpr int kEvents = 250;
  int saved = 0;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    for (int i = 0; i < kEvents && !world.is_done(); ++i) {
      world.make_event();
      if (testing::Test::HasFatalFailure()) return;
    }
    // All waits are bounded, so it ends once nothing happens any more.
    for (int i = 0; i < 20'000 && !world.is_done(); ++i) {
      world.make_peace();
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(world.is_done());
    if (world.saves()) ++saved;
  }
  EXPECT_GT(saved, kRuns / 50);
}

}  // namespace
}  // namespace ddp::elastic
