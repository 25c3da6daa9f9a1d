// SPDX-License-Identifier: Apache-2.0
// A plan as text, for people and for programs.
#pragma once

#include <string>

#include "spank_plugin/launch/plan/plan.h"

namespace ddp::launch {

// Returns "4 ranks on 2 nodes; MASTER_ADDR=node1 (host of rank 0, ...), MASTER_PORT=23001 (...)".
std::string render_summary(const Plan& plan);

// Returns the task-specific values in one line: "rank 3 of 4 on node2: LOCAL_RANK=1 ...".
std::string render_task_line(const Plan& plan);

// Returns that line, and below it the notes that the task prints in a normal run. Ends with a
// newline.
std::string render_brief(const Plan& plan);

// Lists every variable with value, source and rule, in columns, then the notes. Ends with a
// newline.
std::string render_table(const Plan& plan);

// Lists the inputs of the plan: every setting with its origin, and the facts about the step, the
// node and the task. Ends with a newline.
std::string render_facts(const Facts& facts, const Settings& settings);

// Returns POSIX shell code, one `export NAME=value` (or `unset NAME`) per line, without kept
// variables.
std::string render_exports(const Plan& plan);

// Returns the same lines in the form that SLURM reads from a TaskProlog: everything after "=" is
// the value, without quotes.
std::string render_task_prolog(const Plan& plan);

// Returns one line of JSON, schema "slurm-ddp/plan/1": step, node, rank, task_count, node_count (0
// unknown), mode, variables[] of {name, value, rule, source, kept, removed}, notes[], remarks[],
// fabric.
std::string render_json(const Plan& plan);

}  // namespace ddp::launch
