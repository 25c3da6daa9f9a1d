// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/tasks_per_node.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {
namespace {

constexpr std::uint64_t kMaxTasksOfStep = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void fail(std::string_view text) {
  throw LaunchError("cannot read the tasks per node " + quote_for_display(text) +
                    ": expected something like 4,1(x3)");
}

}  // namespace

TasksPerNode TasksPerNode::parse(std::string_view text) {
  if (text.size() > kMaxListText) fail(text);
  TasksPerNode result;
  std::uint64_t all_tasks = 0;
  std::uint64_t all_nodes = 0;
  for (auto item : split(text, ',')) {
    std::uint64_t repeat = 1;
    if (const auto open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') fail(text);
      const auto count = parse_decimal(item.substr(open + 2, item.size() - open - 3), kMaxHosts);
      if (!count || *count == 0) fail(text);
      repeat = *count;
      item = item.substr(0, open);
    }
    const auto tasks = parse_decimal(item, kMaxTasksOfStep);
    if (!tasks || *tasks == 0) fail(text);
    all_tasks += *tasks * repeat;
    all_nodes += repeat;
    if (all_tasks > kMaxTasksOfStep || all_nodes > kMaxHosts) fail(text);
    result.runs_.push_back(
        {static_cast<std::uint32_t>(*tasks), static_cast<std::uint32_t>(repeat)});
  }
  return result;
}

std::uint32_t TasksPerNode::nodes() const noexcept {
  return std::accumulate(runs_.begin(), runs_.end(), 0U,
                         [](std::uint32_t sum, const Run& run) { return sum + run.nodes; });
}

std::uint32_t TasksPerNode::tasks() const noexcept {
  return before(nodes());
}

bool TasksPerNode::uniform() const noexcept {
  return std::all_of(runs_.begin(), runs_.end(),
                     [this](const Run& run) { return run.tasks == runs_.front().tasks; });
}

std::uint32_t TasksPerNode::at(std::uint32_t node) const noexcept {
  return before(node + 1) - before(node);
}

std::uint32_t TasksPerNode::before(std::uint32_t node) const noexcept {
  std::uint32_t sum = 0;
  for (const auto& run : runs_) {
    const auto nodes_here = std::min(node, run.nodes);
    sum += nodes_here * run.tasks;
    node -= nodes_here;
  }
  return sum;
}

}  // namespace ddp::launch
