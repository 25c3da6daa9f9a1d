// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/render.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::launch {
namespace {

// Shortens a value for a line that every run prints, and sanitizes it like all functions below,
// because a terminal must not interpret untrusted values.
std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 200;
  return sanitize_beginning(text, kShown);
}

std::string reason_for(const Plan& plan, const std::string& name) {
  const PlanEntry* entry = plan.find(name);
  return name + "=" + shortened(entry->value) + " (" + sanitize(entry->rule) + ")";
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()) + 2, ' ');
}

// "export NAME=value" or "unset NAME" for each variable that is not kept.
template <typename Quote>
std::string render_lines(const Plan& plan, Quote quote) {
  std::string lines;
  for (const auto& entry : plan.entries) {
    if (entry.removed) lines += "unset " + entry.name + "\n";
    if (!entry.kept && !entry.removed) {
      lines += "export " + entry.name + "=" + std::string(quote(entry.value)) + "\n";
    }
  }
  return lines;
}

}  // namespace

std::string render_summary(const Plan& plan) {
  const std::string nodes =
      plan.node_count == 0 ? "several hosts" : counted(plan.node_count, "node");
  const bool agents = plan.mode == Mode::torchrun;
  const PlanEntry* workers = plan.find("PET_NPROC_PER_NODE");
  const bool has_workers = workers != nullptr && !workers->removed;
  return (agents ? "torchrun: " : "") + counted(plan.task_count, agents ? "agent" : "rank") +
         " on " + nodes + (has_workers ? ", " + shortened(workers->value) + " workers each" : "") +
         "; " + reason_for(plan, "MASTER_ADDR") + ", " + reason_for(plan, "MASTER_PORT") +
         (plan.fabric.empty() ? "" : "; " + sanitize(plan.fabric));
}

std::string render_task_line(const Plan& plan) {
  std::string line = "rank " + std::to_string(plan.rank) + " of " +
                     std::to_string(plan.task_count) + " on " + plan.node + ":";
  for (const auto* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "PET_NODE_RANK",
                           "PET_NPROC_PER_NODE", "OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT"}) {
    if (const auto* entry = plan.find(name))
      line += " " + entry->name + "=" + shortened(entry->value);
  }
  return line;
}

std::string render_brief(const Plan& plan) {
  std::string text = render_task_line(plan) + "\n";
  for (const auto& note : plan.own_notes()) text += "note: " + sanitize(note) + "\n";
  return text;
}

std::string render_table(const Plan& plan) {
  std::size_t name_width = 8;
  std::size_t value_width = 5;
  std::size_t source_width = 6;
  for (const auto& entry : plan.entries) {
    name_width = std::max(name_width, entry.name.size());
    value_width = std::max(value_width, std::min<std::size_t>(entry.value.size(), 48));
    source_width = std::max(source_width, entry.source.size());
  }
  std::string table = "plan of rank " + std::to_string(plan.rank) + " of " +
                      std::to_string(plan.task_count) + " on " + plan.node + ", step " + plan.step +
                      "\n";
  const auto add_row = [&](const auto& name, const auto& value, const auto& source,
                           const auto& rule) {
    table += padded(name, name_width) + padded(value, value_width) + padded(source, source_width) +
             rule + "\n";
  };
  add_row("VARIABLE", "VALUE", "SOURCE", "RULE");
  for (const auto& entry : plan.entries) {
    add_row(entry.name, entry.removed ? "(removed)" : sanitize(entry.value), entry.source,
            sanitize(entry.rule));
  }
  if (!plan.fabric.empty()) table += sanitize(plan.fabric) + "\n";
  for (const auto* notes : {&plan.notes, &plan.node_notes}) {
    for (const auto& note : *notes) table += "note: " + sanitize(note) + "\n";
  }
  for (const auto& remark : plan.remarks) table += "left alone: " + sanitize(remark) + "\n";
  return table;
}

std::string render_facts(const Facts& facts, const Settings& settings) {
  const auto& step = facts.step;
  const auto& task = facts.task;
  const auto& node = facts.node;
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) text += "  " + padded(name, 18) + sanitize(value) + "\n";
  };
  for (const auto& setting : describe_settings(settings)) add("setting", setting);
  add("distribution", step.distribution.empty() ? "block (default)" : step.distribution);
  add("reserved ports", step.reserved_ports);
  add("switches", step.switch_map);
  add("switch address", task.switch_address);
  add("SLURM's addresses", step.node_addresses);
  add("rank by SLURM", std::to_string(task.rank));
  if (task.cpus) {
    add("CPUs", std::to_string(task.cpus->cpus) + " in the affinity mask, " +
                    counted(task.cpus->cores, "core") + "; the step has " +
                    std::to_string(task.cpus_on_node) + " of " + std::to_string(task.cpus->online));
  }
  for (const auto& list : node.gpus) add("GPUs of the node", list.variable + "=" + list.devices);
  for (const auto& list : task.gpus) add("GPUs of the task", list.variable + "=" + list.devices);
  add("their numbers", task.gpu_numbers);
  return text;
}

std::string render_exports(const Plan& plan) {
  return render_lines(plan, shell_word);
}

std::string render_task_prolog(const Plan& plan) {
  return render_lines(plan, [](const std::string& value) { return value; });
}

}  // namespace ddp::launch
