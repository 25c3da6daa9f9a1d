// SPDX-License-Identifier: Apache-2.0
// What a rank that makes no progress waits for, as far as the kernel tells: the function in which
// its process sleeps. When the ranks of a step hang, most wait for each other in the same way, and
// the one that waits in another way is most often the cause.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/watch/process_tree.h"

namespace ddp::watch {

// Returns the function for the process that does the rank's work: the task, or the child for which
// it waits, as a shell does. Empty if it is not known. `processes` as from read_processes().
std::string read_wait_channel(const std::string& proc, std::span<const Process> processes);

// Returns "a file lock" for "locks_lock_inode_wait", and the name itself for an unknown function.
std::string wait_in_words(std::string_view channel);

// Ranks that wait in one way, by their places in a list of channels.
struct Waiting {
  std::string what;  // in words
  std::vector<std::size_t> ranks;
};

// Groups the ranks whose channel is known, the smallest group first.
std::vector<Waiting> group_by_wait(std::span<const std::string> channels);

}  // namespace ddp::watch
