// SPDX-License-Identifier: Apache-2.0
// NAME=value lines, the format of nccl.conf and Open MPI's openmpi-mca-params.conf.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

struct Assignment {
  std::string name;
  std::string value;
  std::string file;  // as users write it: "/etc/nccl.conf", "~/.nccl.conf"

  bool operator==(const Assignment&) const = default;
};

// Skips comments (#), lines without a name and '=', and anything beyond the limits, as the
// libraries do: at most 1024 lines, with values of at most 1024 characters. Spaces around name and
// value are removed.
std::vector<Assignment> parse_assignments(std::string_view text, std::string_view file);

// Returns the first assignment of that name; null if there is none.
const Assignment* find_assignment(std::span<const Assignment> assignments,
                                  std::string_view name) noexcept;

}  // namespace ddp::fabric
