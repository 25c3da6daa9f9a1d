// SPDX-License-Identifier: Apache-2.0
// Decides what happens when ranks and nodes fail. A pure state machine: events in, actions out, and
// the time as an argument. `ddp-run` carries the actions out; the simulation and the tests do as
// if.
//
// Note [Generations]
//
//   gathering --start--> starting --all ready--> running --failure, growth, signal--> ending
//       ^                                                                               |
//       '------------------------- no process is left, checks answered -----------------'
//                                                                                       |
//                                                             done <--success, give up--'
//
// There is never more than one generation with processes: the next one starts only after the
// executor has said that none is left. What is heard of an older one is ignored.
//
// Note [The last start]
// If the end has come while only the memory of nodes has the newest state, the program is started
// once more, to save it:
//
//   gathering, ending --give up--> starting --> running --> ending --whatever has happened--> done
//
// A state that each node has as a whole needs one of them. Nothing of this generation is tried
// again, it does not count against its nodes, and signals do not end it, but its time is bounded.
// Then follows the end that was decided before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp_runtime/elastic/events.h"
#include "ddp_runtime/elastic/failure_report.h"
#include "ddp_runtime/elastic/kept_states.h"
#include "ddp_runtime/elastic/node_ledger.h"
#include "ddp_runtime/elastic/placement.h"
#include "ddp_runtime/elastic/restart_policy.h"
#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

enum class Phase : std::uint8_t { gathering, starting, running, ending, done };

class Supervisor {
 public:
  // `nodes` are those of the allocation, in its order. Throws UsageError for settings that they
  // cannot satisfy.
  Supervisor(Settings settings, const std::vector<std::string>& nodes, Switches switches = {});

  // `now` never decreases. Call it with Tick at least each half second.
  std::vector<Action> handle(const Event& event, Seconds now);

  Phase phase() const noexcept { return phase_; }
  int generation() const noexcept { return generation_; }
  const std::vector<std::string>& members() const noexcept { return members_; }
  int restarts_left() const noexcept { return policy_.restarts_left(); }

  struct Blame {
    int generation = 0;
    std::string why;
    std::vector<std::string> nodes;  // none if nothing is known but that it ended
  };
  // Whose failure it was that ended a generation, once.
  std::optional<Blame> take_blame() { return std::exchange(blame_, std::nullopt); }

 private:
  enum class Reason : std::uint8_t { failure, growth, leaving };
  struct Ending {
    int code = 0;
    std::string text;
    bool requeue = false;
    bool needs_checkpoint = false;  // without one, it is a failure
  };
  struct Saving {
    State state;
    Seconds until = 0;
    Ending then;
  };

  void on(const Begin& event);
  void on(const NodeUp& event);
  void on(const NodeLost& event);
  void on(const RankReady& event);
  void on(const RankEnded& event);
  void on(const Told& event);
  void on(const RankSilent& event);
  void on(const RankAnswered& event);
  void on(const Restoring& event);
  void on(const Training& event);
  void on(const Progress& event);
  void on(const Kept& event);
  void on(const ExecutorGone& event);
  void on(const Checked& event);
  void on(const Signaled& event);
  void on(const Tick& event);

  bool is_current(int generation) const noexcept;
  bool has_processes() const noexcept;
  int ranks() const noexcept;
  void act(Action action) { actions_.push_back(std::move(action)); }

  // Ending
  void begin_ending(Reason reason);
  void stop(Seconds grace, bool save);
  void kill();
  void end_collection();
  void blame();
  void enforce_end();
  void convict_silent();
  void convict_missing();
  bool may_be_usage_error() const;
  void finish_usage_error(int rank, const std::string& how);
  void decide();

  // Starting
  void check(const std::string& node);
  void judge(const std::string& node, bool healthy, const std::string& finding);
  void try_start();
  bool are_trusted(const std::vector<std::string>& nodes);
  void start(std::vector<std::string> nodes);
  void begin_generation(std::vector<std::string> nodes, const State& restore);

  // The end of the run, in supervisor_end.cpp
  void decide_after_failure();
  void decide_after_leaving();
  void give_up_waiting();
  void end(Ending ending);
  void begin_saving(const State& state, Ending ending);
  std::vector<std::string> savers() const;
  void ask_to_save();
  void limit_saving();
  void conclude(const Ending& ending);
  void note_saved();
  void note_lost(const State& state, const std::string& why);
  void finish(int code, const std::string& text = {});

  Settings settings_;
  Switches switches_;
  NodeLedger ledger_;
  RestartPolicy policy_;
  KeptStates kept_;

  Seconds now_ = 0;
  std::vector<Action> actions_;
  Phase phase_ = Phase::gathering;
  bool begun_ = false;
  std::optional<Seconds> gathering_since_;
  Seconds not_before_ = 0;  // of the next start
  bool waiting_told_ = false;

  int generation_ = 0;
  std::vector<std::string> members_;
  Seconds started_at_ = 0;
  std::set<int> ready_;
  std::optional<Seconds> first_ready_at_;
  std::map<int, int> ended_;  // rank: exit code, or 128 + signal
  std::map<int, Seconds> silent_since_;

  bool was_signaled_ = false;
  std::optional<Saving> saving_;  // since the last start
  Reason reason_ = Reason::failure;
  FailureReport failures_{{}, 1};
  std::string why_;  // the last failure, for the next start's note
  Seconds ending_since_ = 0;
  bool blamed_ = false;
  std::optional<Blame> blame_;  // that was not taken yet
  std::optional<Seconds> kill_at_;
  std::optional<Seconds> stuck_at_;
  bool gone_ = false;
  std::map<std::string, Seconds> checks_;    // node: until when
  std::unordered_set<std::string> trusted_;  // nodes that have run the program, or were checked
};

}  // namespace ddp::elastic
