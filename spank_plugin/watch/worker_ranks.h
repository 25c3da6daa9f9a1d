// SPDX-License-Identifier: Apache-2.0
// The ranks that torchrun's workers are, which stand in the variable RANK of their environment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spank_plugin/watch/process_tree.h"

namespace ddp::watch {

// A worker and what it has started; the worker first.
struct RankProcesses {
  std::uint32_t rank = 0;
  std::vector<Process> processes;
};

class WorkerRanks {
 public:
  // Reads the environments of processes that are not known. Not to be called while the workers
  // hang: the kernel may wait for memory that one of them waits for.
  void update(const std::string& proc, std::span<const Process> processes);
  // Returns the workers among the processes, at most 64. What a worker has started inherits its
  // rank, and comes after it.
  std::vector<RankProcesses> workers_in(std::span<const Process> processes) const;

 private:
  using Identity = std::pair<pid_t, std::uint64_t>;  // number and start

  std::map<Identity, std::uint32_t> ranks_;
};

}  // namespace ddp::watch
