// SPDX-License-Identifier: Apache-2.0
// The one line that says how a rank ended and why, for those that ended badly by themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::guard {

// Which processes may be meant by what a task prints.
enum class Peers {
  none,         // a world of one
  other_ranks,  // the task is one rank of several
  own_workers,  // the task is torchrun's agent, and its workers print, too
};

// What the guard knows when its child is gone.
struct Ending {
  int status = 0;                  // of waitpid(2)
  bool was_told = false;           // the launcher or a terminal had sent SIGTERM or SIGINT
  bool is_by_launcher = false;     // the launcher had sent the signal by which the task ended
  std::uint64_t cgroup_kills = 0;  // processes killed for lack of memory meanwhile: in the cgroup
  std::uint64_t node_kills = 0;    // and on the whole node
  std::string_view errors;         // the last of what the rank wrote to standard error
  Peers peers = Peers::other_ranks;
};

// How the line of a rank begins that was told to end, and did not end well.
inline constexpr std::string_view kFailedWhenTold = "failed after SLURM had told it to end";

// Returns "rank 5 (node2) failed: ValueError: bad sample 17 (train.py:88), exit code 1", and the
// like. Empty if there is nothing to say: the rank ended well, or because it was told to, or its
// only error is the echo of another rank's. `who` is "rank 5"; `node` may be empty.
std::string verdict(const Ending& ending, std::string_view who, std::string_view node);

// "SIGKILL", "SIGRTMIN+6"; empty for a number that is no signal.
std::string signal_name(int number);

}  // namespace ddp::guard
