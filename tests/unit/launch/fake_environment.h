// SPDX-License-Identifier: Apache-2.0
// A table of variables that replaces a process's environment, and plans made from such tables.
#pragma once

#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "spank_plugin/launch/plan/plan.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

using Variables = std::map<std::string, std::string>;

// Returns the variables in "NAME=VALUE NAME=VALUE"; no value contains a space.
inline Variables variables_in(const std::string& words) {
  Variables variables;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const std::size_t equals = word.find('=');
    variables[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return variables;
}

inline EnvLookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// Returns `first` with the variables of `second` added or replaced.
inline Variables merged(Variables first, const Variables& second) {
  for (const auto& [name, value] : second) first[name] = value;
  return first;
}

inline Facts slurm_facts(const Variables& variables, const NodeFacts& node = {}) {
  const EnvLookup environment = lookup_in(variables);
  Facts facts;
  facts.step = read_slurm_step(environment);
  facts.task = read_slurm_task(environment, facts.step);
  facts.node = node;
  return facts;
}

inline Plan slurm_plan(const Variables& variables, const Settings& settings = {},
                       const NodeFacts& node = {}) {
  const Facts facts = slurm_facts(variables, node);
  return make_plan(facts, settings, Inherited(lookup_in(variables), facts.step.id));
}

// Returns "" for a variable that the plan does not have.
inline std::string value_in(const Plan& plan, const std::string& name) {
  const PlanEntry* entry = plan.find(name);
  return entry == nullptr ? "" : entry->value;
}

// The variables of rank 2 in a step of two nodes with two tasks each.
inline Variables two_by_two() {
  return variables_in(
      "SLURM_JOB_ID=100 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 "
      "SLURM_STEP_NODELIST=p[1-2] SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_PROCID=2 SLURM_LOCALID=0 "
      "SLURM_NODEID=1 SLURM_GTIDS=2,3 SLURMD_NODENAME=p2");
}

// The variables of the second task in a step of three nodes with one task each.
inline Variables one_per_node() {
  return variables_in(
      "SLURM_JOB_ID=100 SLURM_STEP_ID=2 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NUM_NODES=3 "
      "SLURM_STEP_NODELIST=p[1-3] SLURM_STEP_TASKS_PER_NODE=1(x3) SLURM_PROCID=1 SLURM_LOCALID=0 "
      "SLURM_NODEID=1 SLURM_GTIDS=1 SLURMD_NODENAME=p2");
}

// The settings of srun --ddp=SPEC.
inline Settings asked(const std::string& spec) {
  Settings settings;
  apply(settings, parse_spec(spec, "test"), Origin::command_line);
  return settings;
}

}  // namespace ddp::launch
