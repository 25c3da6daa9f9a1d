// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/errors.h"
#include "base/young.h"
#include "ddp_runtime/elastic/supervisor.h"

namespace ddp::elastic {
namespace {

constexpr Seconds kBusyTick = 0.5;  // while the supervisor waits for something
constexpr Seconds kGatheringTick = 5;
constexpr Seconds kQuietTick = 30;
constexpr int kKill = 9;
// Events of one simulated job; the supervisor needs about a microsecond for each.
constexpr double kMaxEvents = 2e8;

Settings settings_of(const SimulatedJob& job) {
  Settings settings;
  settings.max_nodes = job.nodes;
  settings.min_nodes =
      job.min_nodes > 0 ? job.min_nodes : std::max<std::size_t>(job.nodes * 9 / 10, 1);
  settings.max_restarts = std::numeric_limits<int>::max();
  settings.max_no_progress = std::numeric_limits<int>::max();
  settings.wait_for_nodes = job.length;
  return settings;
}

void require_simulable(const SimulatedJob& job) {
  if (job.nodes < 1 || job.length <= 0 || job.node_mtbf <= 0 || job.crashes < 0 || job.hangs < 0 ||
      job.crashes + job.hangs > 1) {
    throw UsageError(
        "a simulated job needs nodes, a length, a time between failures, and parts of "
        "crashes and hangs that are at most 1 together");
  }
  if (job.min_nodes > job.nodes) {
    throw UsageError(fmt::format("at least {} nodes (--min-nodes) are more than {} (--nodes)",
                                 job.min_nodes, job.nodes));
  }
  if (job.stall >= job.length || job.restart >= job.length) {
    throw UsageError(
        "a checkpoint (--stall) or a start (--restart) takes longer than the job (--days)");
  }
  const double interval = job.interval > 0 ? job.interval : young_interval(job);
  const auto nodes = static_cast<double>(job.nodes);
  // Each node has to start again after each failure.
  const double events = job.length / kQuietTick + job.length / (interval + job.stall) +
                        job.length * nodes / job.node_mtbf * nodes;
  if (!(events <= kMaxEvents)) {
    throw UsageError(
        fmt::format("simulating a job of about {:.0e} events would take hours; give it fewer days "
                    "or nodes, or more time between failures or checkpoints",
                    events));
  }
}

std::vector<std::string> names_of(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("n{}", i));
  return names;
}

class World {
 public:
  World(const SimulatedJob& job, std::uint64_t seed)
      : job_(job),
        interval_(job.interval > 0 ? job.interval : young_interval(job)),
        random_(seed),
        supervisor_(settings_of(job), names_of(job.nodes + job.spares)) {}

  SimulatedOutcome run() {
    tell(Begin{});
    schedule(kBusyTick, [this] { tick(); });
    while (!queue_.empty() && queue_.top().at < job_.length && supervisor_.phase() != Phase::done) {
      auto next = queue_.top();
      queue_.pop();
      now_ = next.at;
      next.happen();
    }
    keep_rest();
    SimulatedOutcome outcome;
    outcome.finished_early = supervisor_.phase() == Phase::done;
    outcome.ettr = kept_ / job_.length;
    outcome.per_node = outcome.ettr * static_cast<double>(job_.nodes) /
                       static_cast<double>(job_.nodes + job_.spares);
    outcome.failures = failures_;
    outcome.generations = supervisor_.generation();
    return outcome;
  }

 private:
  struct Happening {
    Seconds at = 0;
    std::int64_t number = 0;  // the order of those at the same time
    std::function<void()> happen;
    bool operator<(const Happening& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };

  void schedule(Seconds after, std::function<void()> happen) {
    queue_.push({now_ + after, ++scheduled_, std::move(happen)});
  }
  // Only if the generation is still the current one.
  void schedule_in(int generation, Seconds after, std::function<void()> happen) {
    schedule(after, [this, generation, happen = std::move(happen)] {
      if (alive_ == generation) happen();
    });
  }

  void tick() {
    tell(Tick{});
    const bool waits = supervisor_.phase() == Phase::ending || suspects_;
    const bool gathers = supervisor_.phase() == Phase::gathering;
    schedule(waits ? kBusyTick : (gathers ? kGatheringTick : kQuietTick), [this] { tick(); });
  }

  void tell(const Event& event) {
    for (const auto& action : supervisor_.handle(event, now_)) {
      std::visit([this](const auto& one) { carry_out(one); }, action);
    }
  }

  void carry_out(const Start& start) {
    alive_ = start.generation;
    suspects_ = false;
    trains_ = false;
    members_ = start.nodes;
    schedule_in(alive_, job_.restart, [this] { begin_training(); });
  }
  void carry_out(const Stop& stop) { end_generation(stop.generation); }
  void carry_out(const Kill& kill) { end_generation(kill.generation); }
  void carry_out(const Check& check) {
    schedule(job_.checking, [this, node = check.node] {
      tell(Checked{node, broken_.find(node) == broken_.end(), "broken"});
    });
  }
  template <class Other>
  void carry_out(const Other& /*other*/) {}

  // A save at the end of a generation that grows costs its stall, and loses nothing.
  void end_generation(int generation) {
    if (ending_ == generation) return;
    ending_ = generation;
    schedule(job_.ending, [this, generation] {
      if (alive_ == generation) alive_ = 0;
      tell(ExecutorGone{generation});
    });
  }

  // What it has done since the last checkpoint when its time is over.
  void keep_rest() {
    if (alive_ == 0 || ending_ == alive_ || suspects_ || !trains_) return;
    const Seconds rest = std::clamp(job_.length - trained_from_, 0.0, interval_);
    kept_ += rest * static_cast<double>(members_.size()) / static_cast<double>(job_.nodes);
  }

  void begin_training() {
    trains_ = true;
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
      tell(RankReady{alive_, rank});
    }
    schedule_checkpoint();
    schedule_failure();
  }

  void schedule_checkpoint() {
    trained_from_ = now_;
    schedule_in(alive_, interval_ + job_.stall, [this] {
      if (ending_ == alive_ || suspects_) return;
      kept_ += interval_ * static_cast<double>(members_.size()) / static_cast<double>(job_.nodes);
      tell(Progress{alive_, ++step_});
      tell(Kept{alive_, {Tier::disk, step_}});
      if (ending_ != alive_) schedule_checkpoint();
    });
  }

  void schedule_failure() {
    const Seconds mean = job_.node_mtbf / static_cast<double>(members_.size());
    schedule_in(alive_, std::exponential_distribution<double>(1 / mean)(random_), [this] {
      if (ending_ == alive_) return;
      fail();
      if (ending_ != alive_) schedule_failure();
    });
  }

  void fail() {
    ++failures_;
    const auto rank =
        std::uniform_int_distribution<int>(0, static_cast<int>(members_.size()) - 1)(random_);
    const auto node = members_[static_cast<std::size_t>(rank)];
    const double kind = std::uniform_real_distribution<double>(0, 1)(random_);
    if (kind < job_.crashes) return tell(RankEnded{alive_, rank, 0, kKill, false});
    break_down(node);
    suspects_ = true;  // no rank makes a step any more
    if (kind < job_.crashes + job_.hangs) return tell(RankSilent{alive_, rank});
    schedule_in(alive_, Settings().silence, [this, node] { tell(NodeLost{node, "silent"}); });
  }

  void break_down(const std::string& node) {
    broken_.emplace(node, now_);
    schedule(job_.repair, [this, node] {
      broken_.erase(node);
      tell(NodeUp{node});
    });
  }

  SimulatedJob job_;
  Seconds interval_;
  std::mt19937_64 random_;
  Supervisor supervisor_;
  Seconds now_ = 0;
  std::priority_queue<Happening> queue_;
  std::int64_t scheduled_ = 0;

  int alive_ = 0;   // the generation that has processes; 0: none
  int ending_ = 0;  // the last one that was asked to end
  bool suspects_ = false;
  bool trains_ = false;       // this generation has begun to
  Seconds trained_from_ = 0;  // the end of its last checkpoint
  std::vector<std::string> members_;
  std::unordered_map<std::string, Seconds> broken_;
  Seconds kept_ = 0;  // time of steps that are in a checkpoint
  std::int64_t step_ = 0;
  int failures_ = 0;
};

}  // namespace

Seconds young_interval(const SimulatedJob& job) {
  return ddp::young_interval(job.stall, job.node_mtbf / static_cast<double>(job.nodes));
}

SimulatedOutcome simulate(const SimulatedJob& job, std::uint64_t seed) {
  require_simulable(job);
  return World(job, seed).run();
}

}  // namespace ddp::elastic
