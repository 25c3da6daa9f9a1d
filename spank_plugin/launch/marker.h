#pragma once
// SLURM_DDP_SET=<step>:<names>:<ports>, e.g.
// "12.0:MASTER_ADDR=9c2f0a11,MASTER_PORT=03d1e7b2:23001-23003": which variables of this environment
// were set by a plan, each with a hash of its value, for which step, with which reserved ports.
// A step that is started from inside a task inherits them all; without this note they would look
// as if the user had set them. Whose value has changed since is the user's after all.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/environment.h"

namespace ddp::launch {

// What a plan sets whoever has set it before, so that it is in no marker.
inline constexpr std::array<const char*, 12> kRankVariables = {"RANK",
                                                               "WORLD_SIZE",
                                                               "LOCAL_RANK",
                                                               "LOCAL_WORLD_SIZE",
                                                               "NODE_RANK",
                                                               "GROUP_RANK",
                                                               "NNODES",
                                                               "GROUP_WORLD_SIZE",
                                                               "JAX_NUM_PROCESSES",
                                                               "JAX_PROCESS_ID",
                                                               "DDP_LOCAL_DEVICE",
                                                               "PET_NODE_RANK"};

struct MarkedVariable {
  std::string name;
  std::string hash;  // of its value, see hash_for_marker; empty if unknown, as of older releases

  bool operator==(const MarkedVariable&) const = default;
};

struct Marker {
  std::string step;
  std::vector<MarkedVariable> variables;
  std::string reserved_ports;  // as SLURM wrote them; empty if there were none
};

std::string format_marker(const Marker& marker);

// Eight hexadecimal digits.
std::string hash_for_marker(std::string_view value);

// Nothing for a text that format_marker does not write: it then counts as no marker.
std::optional<Marker> parse_marker(std::string_view text);

// Tells the user's variables from those that a plan left in the environment.
class Inherited {
 public:
  // `step` is the identity of the step that is planned now.
  Inherited(EnvLookup environment, std::string step);

  // The value that the user gave a variable: set, not empty, and not by a plan.
  std::optional<std::string> from_user(const std::string& name) const;

  // The value that an earlier plan of this very step gave it (ddp-launch inside `srun --ddp`).
  std::optional<std::string> from_this_step(const std::string& name) const;

  // True if the plan of another step, around this one, left the variable here.
  bool is_left_over(const std::string& name) const;

  // The names of all variables with the values that a plan, of whichever step, gave them.
  std::vector<std::string> marked_names() const;

  // True if the variable is there at all, whoever set it.
  bool is_set(const std::string& name) const { return environment_(name).has_value(); }

  // True if either of the two gives the variable a value, so that it need not be derived.
  bool gives(const std::string& name) const;

  // True if these reserved ports belong to the step around this one.
  bool are_ports_of_another_step(std::string_view reserved_ports) const;

 private:
  bool is_marked(const std::string& name) const;

  EnvLookup environment_;
  std::string step_;
  std::optional<Marker> marker_;
};

}  // namespace ddp::launch
