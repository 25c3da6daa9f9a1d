// SPDX-License-Identifier: Apache-2.0
// SLURM_DDP_SET=<step>:<names>:<ports>, e.g.
// "12.0:MASTER_ADDR=9c2f0a11,MASTER_PORT=03d1e7b2:23001-23003": records which variables of this
// environment were set by a plan, each with a hash of its value, for which step, and with which
// reserved ports. A step that is started from inside a task inherits all of them; without this
// marker they would look as if the user had set them. A variable whose value no longer matches the
// hash belongs to the user.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/step/environment.h"

namespace ddp::launch {

// Variables that a plan always overwrites, so a marker need not list them.
inline constexpr std::array<const char*, 11> kRankVariables = {
    "RANK",         "WORLD_SIZE", "LOCAL_RANK",       "LOCAL_WORLD_SIZE",  "NODE_RANK",
    "GROUP_RANK",   "NNODES",     "GROUP_WORLD_SIZE", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
    "PET_NODE_RANK"};

struct MarkedVariable {
  std::string name;
  // The hash of its value, see hash_for_marker; empty if unknown, as in markers of older releases.
  std::string hash;

  bool operator==(const MarkedVariable&) const = default;
};

struct Marker {
  std::string step;
  std::vector<MarkedVariable> variables;
  std::string reserved_ports;  // in SLURM's format; empty if there were none
};

std::string format_marker(const Marker& marker);

// Returns eight hexadecimal digits.
std::string hash_for_marker(std::string_view value);

// Returns nullopt for a text that format_marker does not write, which is treated like a missing
// marker.
std::optional<Marker> parse_marker(std::string_view text);

// Distinguishes the user's variables from those that a plan left in the environment.
class Inherited {
 public:
  // `step` identifies the step that is being planned.
  Inherited(EnvLookup environment, std::string step);

  // Returns the user's value of a variable: not empty, and not set by a plan.
  std::optional<std::string> from_user(const std::string& name) const;

  // Returns the value from an earlier plan of the same step (ddp-launch inside `srun --ddp`).
  std::optional<std::string> from_this_step(const std::string& name) const;

  // True if the plan of an enclosing step left the variable.
  bool is_left_over(const std::string& name) const;

  // Returns the names of all variables that still have the value from a plan, of any step.
  std::vector<std::string> marked_names() const;

  // True if the variable is set at all, by the user or by a plan.
  bool is_set(const std::string& name) const { return environment_(name).has_value(); }

  // True if the user or an earlier plan of this step provides a value, so that none need be
  // derived.
  bool gives(const std::string& name) const;

  // True if these reserved ports belong to the enclosing step.
  bool are_ports_of_another_step(std::string_view reserved_ports) const;

 private:
  bool is_marked(const std::string& name) const;

  EnvLookup environment_;
  std::string step_;
  std::optional<Marker> marker_;
};

}  // namespace ddp::launch
