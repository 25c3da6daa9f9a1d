// SPDX-License-Identifier: Apache-2.0
// SLURM_STEP_TASKS_PER_NODE, the number of tasks on each node of a step, run-length encoded in the
// order of the node list, e.g. "4,1(x3)".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ddp::launch {

class TasksPerNode {
 public:
  // Grammar: item {"," item}, item = tasks ["(x" repeat ")"]. Both numbers are at least 1; at most
  // 65,536 nodes and 2^31 - 1 tasks in all. Throws LaunchError for any other text.
  static TasksPerNode parse(std::string_view text);

  std::uint32_t nodes() const noexcept;
  std::uint32_t tasks() const noexcept;
  bool uniform() const noexcept;

  // Return the number of tasks of the node with this index, and of all nodes before it. The index
  // must be less than nodes().
  std::uint32_t at(std::uint32_t node) const noexcept;
  std::uint32_t before(std::uint32_t node) const noexcept;

 private:
  struct Run {
    std::uint32_t tasks = 0;
    std::uint32_t nodes = 0;
  };
  std::vector<Run> runs_;
};

}  // namespace ddp::launch
