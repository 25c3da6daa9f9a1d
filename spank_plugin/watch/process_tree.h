// SPDX-License-Identifier: Apache-2.0
// The processes of a rank: its task, and what the task has started. Read from /proc, without any
// privilege, as far as the processes belong to the same user.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::watch {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start = 0;          // ticks since boot; with the pid it identifies a process
  char state = '?';                 // a letter of proc(5): 'R', 'S', 'D', 'T' and others
  std::chrono::milliseconds cpu{};  // of its threads, and of the children that it has reaped
  // Bytes of read(2), write(2) and the like, and those that were read from devices and network file
  // systems, also by mmap(2). None if they cannot be read.
  std::optional<std::uint64_t> io;
};

// Parses /proc/PID/stat, which does not know `io`. Returns nullopt if the text has another format
// or the process has ended: a zombie, unless other threads than its first still run.
std::optional<Process> parse_stat(std::string_view text);

// The children of a process, whose directory is given, in the order of its threads; at most 4096,
// and of at most `threads` threads, which are subtracted.
std::vector<pid_t> read_children(const std::string& process, std::size_t& threads);

// Returns `task`, a child of `parent`, and then the others below `parent`: children, their children
// and so on, at most 4096. Leaves out those that have ended. A guard is the parent: it adopts the
// processes whose own parent has ended. Returns nothing where the kernel does not list children.
// `proc` is "/proc".
std::vector<Process> read_processes(const std::string& proc, pid_t parent, pid_t task);

// Those of the processes that are `root` or below it, in their order.
std::vector<Process> tree_of(std::span<const Process> processes, pid_t root);

}  // namespace ddp::watch
