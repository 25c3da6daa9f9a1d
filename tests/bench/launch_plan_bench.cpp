// SPDX-License-Identifier: Apache-2.0
// Measures the cost of the plan for one task of a large step: time and memory of all the plugin's
// work on SLURM's variables, from text to entries. Prints one line per step size, for SLURM's order
// of ranks and for the order by switch. The variables are in a table, so the figures exclude
// SLURM's own spank_getenv, which searches the environment.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "spank_plugin/launch/plan/plan.h"

namespace {

std::size_t bytes_now = 0;
std::size_t bytes_peak = 0;

}  // namespace

// Counts the memory in use by the plan; the size is stored in front of each block.
void* operator new(std::size_t size) {
  auto* block = static_cast<std::size_t*>(std::malloc(size + 16));
  if (block == nullptr) throw std::bad_alloc();
  *block = size;
  bytes_now += size;
  bytes_peak = std::max(bytes_peak, bytes_now);
  return block + 2;
}

void operator delete(void* pointer) noexcept {
  if (pointer == nullptr) return;
  auto* block = static_cast<std::size_t*>(pointer) - 2;
  bytes_now -= *block;
  std::free(block);
}

void operator delete(void* pointer, std::size_t /*size*/) noexcept {
  operator delete(pointer);
}

namespace ddp::launch {
namespace {

constexpr std::uint32_t kTasksPerNode = 8;
constexpr std::uint32_t kNodesPerSwitch = 32;

// Returns the variables of the last task of the step. Neighboring nodes are below different
// switches, which is the worst case for SLURM's order.
std::map<std::string, std::string> variables_of(std::uint32_t nodes) {
  const std::string count = std::to_string(nodes);
  std::string ids;
  for (std::uint32_t i = 0; i < kTasksPerNode; ++i) {
    if (i > 0) ids += ',';
    ids += std::to_string((nodes - 1) * kTasksPerNode + i);
  }
  std::string switches;
  for (std::uint32_t leaf = 0; leaf < nodes / kNodesPerSwitch; ++leaf) {
    if (leaf > 0) switches += ';';
    switches.append("top.leaf").append(std::to_string(leaf)).append("=node[");
    for (std::uint32_t i = 0; i < kNodesPerSwitch; ++i) {
      if (i > 0) switches += ',';
      switches += std::to_string(1 + leaf + i * (nodes / kNodesPerSwitch));
    }
    switches += ']';
  }
  return {{"SLURM_JOB_ID", "100"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", std::to_string(nodes * kTasksPerNode)},
          {"SLURM_STEP_NUM_NODES", count},
          {"SLURM_STEP_NODELIST", "node[1-" + count + "]"},
          {"SLURM_STEP_TASKS_PER_NODE", std::to_string(kTasksPerNode) + "(x" + count + ")"},
          {"SLURM_PROCID", std::to_string(nodes * kTasksPerNode - 1)},
          {"SLURM_LOCALID", std::to_string(kTasksPerNode - 1)},
          {"SLURM_NODEID", std::to_string(nodes - 1)},
          {"SLURM_GTIDS", ids},
          {"SLURMD_NODENAME", "node" + count},
          {"SLURM_DDP_SWITCHES", switches.size() <= 100'000 ? switches : ""}};
}

double plan_once(const EnvLookup& environment, const std::string& settings_text) {
  const auto begin = std::chrono::steady_clock::now();
  const Settings settings = decode_settings(settings_text);
  Facts facts;
  facts.step = read_slurm_step(environment);
  facts.task = read_slurm_task(environment, facts.step);
  const Plan plan = make_plan(facts, settings, Inherited(environment, facts.step.id));
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return plan.entries.empty() ? 0 : time.count();
}

void measure(std::uint32_t nodes, Order order) {
  constexpr int kRuns = 51;
  const auto variables = variables_of(nodes);
  if (order == Order::by_switch && variables.at("SLURM_DDP_SWITCHES").empty()) return;
  const EnvLookup environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  Settings settings;
  settings.mode = {Mode::rank, Origin::command_line};
  settings.order = {order, Origin::command_line};
  const std::string text = encode_settings(settings);
  std::vector<double> times;
  const std::size_t before = bytes_now;
  bytes_peak = bytes_now;
  for (int i = 0; i < kRuns; ++i) times.push_back(plan_once(environment, text));
  std::sort(times.begin(), times.end());
  const double kib = static_cast<double>(bytes_peak - before) / 1024;
  std::printf(
      "%6u nodes %7u tasks  order=%-7s %8.3f ms median (%.3f - %.3f)  %8.1f KiB peak  %6.1f "
      "bytes/node\n",
      nodes, nodes * kTasksPerNode, std::string(word_for(order)).c_str(), times[kRuns / 2],
      times[kRuns / 10], times[kRuns * 9 / 10], kib, kib * 1024 / nodes);
}

}  // namespace
}  // namespace ddp::launch

int main() {
  using ddp::launch::Order;
  for (const auto order : {Order::slurm, Order::by_switch}) {
    for (const std::uint32_t nodes : {64U, 512U, 4096U, 32'768U})
      ddp::launch::measure(nodes, order);
  }
  return 0;
}
