// SPDX-License-Identifier: Apache-2.0
// What the supervisor hears, and what it wants done. Both are values without any I/O, so that a
// schedule of faults is a list of events, and its outcome a list of actions.
//
// A generation is one start of the program: a fixed list of nodes, and ranks on them. Events of
// other generations than the current one are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddp::elastic {

using Seconds = double;  // since any moment that does not change

// Where the state of a step is kept. Memory of the nodes survives processes; a disk survives nodes.
enum class Tier : std::uint8_t { none, disk, memory };

struct State {
  Tier tier = Tier::none;
  std::int64_t step = 0;

  bool operator==(const State&) const = default;
};

// --- Events

// The nodes of the allocation are known; the program may start.
struct Begin {};
// A node can be used, for the first time or again.
struct NodeUp {
  std::string node;
};
struct NodeLost {
  std::string node;
  std::string why;
};
struct RankReady {  // the program runs
  int generation = 0;
  int rank = 0;
};
// A process has ended: by a signal if it is not 0, otherwise with an exit code.
struct RankEnded {
  int generation = 0;
  int rank = 0;
  int code = 0;
  int signal = 0;
  // Nobody saw it: the agent that had started it is gone, too, as after `scancel`.
  bool with_its_agent = false;
};
// What the program says about its failure, and on which rank.
struct Told {
  int generation = 0;
  int rank = 0;
  std::string text;
  bool is_usage_error = false;  // its command line is wrong
};
struct RankSilent {  // no sign of life for a while
  int generation = 0;
  int rank = 0;
};
struct RankAnswered {
  int generation = 0;
  int rank = 0;
};
struct Restoring {  // the program begins to load a state
  int generation = 0;
};
struct Training {  // the program has the state after this step, and begins with the next one
  int generation = 0;
  std::int64_t step = 0;
};
struct Progress {  // a step has ended on all ranks
  int generation = 0;
  std::int64_t step = 0;
  // Sums since training began, so that a line that is lost loses nothing: the time of the steps
  // without that of checkpoints, the time for which checkpoints delayed them, and how many did.
  // nullopt: the program does not tell.
  std::optional<Seconds> step_seconds = {};
  std::optional<Seconds> stall_seconds = {};
  std::optional<std::int64_t> saves = {};
};
struct Kept {  // the state after a step can be restored from here
  int generation = 0;
  State state;
  // Of a state in memory: each node has a part of it. Otherwise each has all of it.
  bool divided = false;
};
struct ExecutorGone {  // no process of the generation is left
  int generation = 0;
  std::string text = {};  // how its launcher has ended, if that says something
};
struct Checked {
  std::string node;
  bool healthy = true;
  std::string finding;
  // The check says nothing about the node, because slurmctld did not answer. Then not `healthy`.
  bool unknown = false;
};
struct Signaled {  // the job has to end soon, and may continue later
  int signal = 0;
};
struct Tick {};  // time passes

using Event =
    std::variant<Begin, NodeUp, NodeLost, RankReady, RankEnded, Told, RankSilent, RankAnswered,
                 Restoring, Training, Progress, Kept, ExecutorGone, Checked, Signaled, Tick>;

// --- Actions

struct Start {
  int generation = 0;
  std::vector<std::string> nodes;  // ranks follow each other in this order
  State restore;
  // Only to save that state, which is in memory, to a disk. The last start.
  bool save = false;

  bool operator==(const Start&) const = default;
};
// Asks the processes to end: to save, if there is time; by force after the grace.
struct Stop {
  int generation = 0;
  Seconds grace = 0;
  bool save = false;

  bool operator==(const Stop&) const = default;
};
struct Kill {
  int generation = 0;

  bool operator==(const Kill&) const = default;
};
struct Check {
  std::string node;

  bool operator==(const Check&) const = default;
};
struct Exclude {
  std::string node;
  Seconds until = 0;  // kForever: for the rest of the job
  std::string why;

  bool operator==(const Exclude&) const = default;
};
inline constexpr Seconds kForever = 1e18;
struct Requeue {
  bool operator==(const Requeue&) const = default;
};
// Kills what is left. 75: to be continued.
struct Finish {
  int code = 0;

  bool operator==(const Finish&) const = default;
};
struct Note {
  std::string text;

  bool operator==(const Note&) const = default;
};

using Action = std::variant<Start, Stop, Kill, Check, Exclude, Requeue, Finish, Note>;

inline constexpr int kUsageCode = 2;
inline constexpr int kContinueCode = 75;  // EX_TEMPFAIL of sysexits.h

}  // namespace ddp::elastic
