#pragma once
// SLURM_DDP_SET=<step>:<names>:<ports>, e.g. "12.0:MASTER_ADDR,MASTER_PORT:23001-23003": which
// variables of this environment were set by a plan, for which step, with which reserved ports.
// A step that is started from inside a task inherits them all; without this note they would look
// as if the user had set them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/environment.h"

namespace ddp::launch {

struct Marker {
  std::string step;
  std::vector<std::string> names;
  std::string reserved_ports;  // as SLURM wrote them; empty if there were none
};

std::string format_marker(const Marker& marker);

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
