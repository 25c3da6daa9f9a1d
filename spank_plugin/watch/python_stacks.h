// SPDX-License-Identifier: Apache-2.0
// Asks Python processes where they stand. Those that ran python/sitecustomize.py at their start
// write the stack of their main thread on a signal.
//
// A signal can do harm. It ends a process that does not handle it, now or after it has executed
// another program; it wakes one that waits for a signal; and a stack that changes cannot be read.
// So it is sent only to a main thread that sleeps, handles the signal, does not block it, and waits
// in a call that continues afterwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "spank_plugin/watch/process_tree.h"

namespace ddp::watch {

// The file into which a process writes its stack, and the signal on which it does.
struct StackFile {
  FileDescriptor file;
  std::uint64_t device = 0;  // and inode: shared by the children that it has forked
  std::uint64_t inode = 0;
  int signal = 0;
};

// Returns nullopt for a process that must not be asked. `process` is its directory in /proc.
std::optional<StackFile> find_stack_file(const std::string& process);

class PythonStacks {
 public:
  // Forgets earlier answers. Of processes that share a file it asks only the first.
  void ask(std::span<const pid_t> processes);
  // Reads what has been answered since.
  void read();
  void forget();
  // See place_in_stacks(); empty as long as it is not known.
  std::string place(pid_t process) const;

  // An answer is no progress: subtracts what the processes have written for it. Forgets those that
  // are not among the processes any more.
  void subtract_answers(std::vector<Process>& processes);

 private:
  struct Asked {
    pid_t process = 0;
    StackFile stacks;
    off_t first = 0;  // size of the file before the first question
    off_t start = 0;  // and before the last one; -1 if its answer is forgotten
    off_t seen = 0;   // when it was read last
    std::string place = {};
  };
  void ask(pid_t process);

  std::vector<Asked> asked_;
};

}  // namespace ddp::watch
