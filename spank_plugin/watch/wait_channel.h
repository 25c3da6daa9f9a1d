// SPDX-License-Identifier: Apache-2.0
// What a rank that makes no progress waits for: the function of the kernel in which its process
// sleeps, and the line of a Python program that is there. When the ranks of a step hang, most wait
// for each other in the same way, and the one that waits in another way is most often the cause.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/watch/process_tree.h"

namespace ddp::watch {

struct WaitingProcess {
  pid_t pid = 0;        // 0 if there is none
  std::string channel;  // the function; empty if it is not known
};

// Returns the process that does the rank's work: the task, or the child for which it waits, as a
// shell does; of several children the one whose tree has used the most processor time. `processes`
// as from read_processes().
WaitingProcess find_waiting_process(const std::string& proc, std::span<const Process> processes);

// Returns "a file lock" for "locks_lock_inode_wait", and the name itself for an unknown function.
std::string wait_in_words(std::string_view channel);

struct RankWait {
  std::uint32_t rank = 0;
  std::string channel;  // see find_waiting_process()
  std::string place;    // see place_in_stacks()
};

// Ranks that wait in one way.
struct Waiting {
  std::string how;  // "for a file lock at data.py:17 in load"
  std::vector<std::uint32_t> ranks;
};

// Groups the ranks of which something is known, the smallest group first.
std::vector<Waiting> group_by_wait(std::span<const RankWait> ranks);

}  // namespace ddp::watch
