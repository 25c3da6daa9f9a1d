// SPDX-License-Identifier: Apache-2.0
// Distances between the NUMA nodes of a machine, from the firmware's table (ACPI SLIT) in
// /sys/devices/system/node.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

namespace ddp::fabric {

class NumaDistances {
 public:
  NumaDistances() = default;

  void set(int from, int to, int distance) { table_[{from, to}] = distance; }

  // Returns 10 within a node and more between two nodes. If the table lacks an entry, returns the
  // kernel's defaults, 10 and 20. Returns nullopt if either node is unknown.
  std::optional<int> between(std::optional<int> from, std::optional<int> to) const;

 private:
  std::map<std::pair<int, int>, int> table_;
};

// Reads the table below `sys`, normally "/sys". At most 256 nodes; a line with another number of
// entries is skipped.
NumaDistances read_numa_distances(const std::filesystem::path& sys);

}  // namespace ddp::fabric
