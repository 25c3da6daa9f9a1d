// NAME=value lines, as nccl.conf and Open MPI's openmpi-mca-params.conf have them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

struct Assignment {
  std::string name;
  std::string value;
  std::string file;  // as people write it: "/etc/nccl.conf", "~/.nccl.conf"

  bool operator==(const Assignment&) const = default;
};

// Lines without a name and '=', comments (#) and what exceeds the bounds are skipped, as the
// libraries do: at most 1024 lines, with values of 1024 characters. Spaces around name and value do
// not count.
std::vector<Assignment> parse_assignments(std::string_view text, std::string_view file);

// The first of that name.
const Assignment* find_assignment(std::span<const Assignment> assignments,
                                  std::string_view name) noexcept;

}  // namespace ddp::fabric
