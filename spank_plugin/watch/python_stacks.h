// SPDX-License-Identifier: Apache-2.0
// Asks Python processes where they stand. Those that ran python/sitecustomize.py at their start
// write their stacks on a signal. Any other process would be killed by it, so it is sent only to
// one that has the file for the stacks open and a handler for the signal.
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

// The file into which a process writes its stacks, and the signal on which it does.
struct StackFile {
  FileDescriptor file;
  std::uint64_t inode = 0;  // shared by the children that it has forked
  int signal = 0;
};

// Returns nullopt for a process that would not write. `process` is its directory in /proc.
std::optional<StackFile> find_stack_file(const std::string& process);

// Questions that are under way, and their answers.
class PythonStacks {
 public:
  struct Answer {
    pid_t process = 0;
    std::string place;  // see place_in_stacks(); empty before it is known
  };

  // Asks the first `most` of the processes that have a file of their own. Forgets all answers.
  void ask(std::span<const Process> processes, std::size_t most);
  // Reads what has been answered. A process that is stopped does not answer, so it is waited for in
  // three calls only.
  void read();
  bool is_waiting() const noexcept { return patience_ > 0; }
  void forget();

  const std::vector<Answer>& answers() const noexcept { return answers_; }

 private:
  struct Question {
    StackFile stacks;
    off_t start = 0;  // size of the file before
  };

  std::vector<Question> questions_;  // one for each answer
  std::vector<Answer> answers_;
  int patience_ = 0;
};

}  // namespace ddp::watch
