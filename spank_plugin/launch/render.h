#pragma once
// A plan as text, for people and for programs.

#include <string>

#include "spank_plugin/launch/plan.h"

namespace ddp::launch {

// "4 ranks on 2 nodes; MASTER_ADDR=node1 (host of rank 0, ...), MASTER_PORT=23001 (...)".
std::string render_summary(const Plan& plan);

// What differs from task to task, in one line: "rank 3 of 4 on node2: LOCAL_RANK=1 ...".
std::string render_task_line(const Plan& plan);

// Every variable with value, source and rule, in columns, then the notes. Ends with a line break.
std::string render_table(const Plan& plan);

// POSIX shell, one `export NAME=value` a line; variables that were kept are left out.
std::string render_exports(const Plan& plan);

// One line of JSON, schema "slurm-ddp/plan/1": step, node, rank, task_count, node_count (0
// unknown), variables[] of {name, value, rule, source, kept}, notes[].
std::string render_json(const Plan& plan);

}  // namespace ddp::launch
