// Error counters of network interfaces and InfiniBand ports. They count since the machine started,
// so only what was added since an earlier look says something.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

// "eth0 rx_crc_errors", "mlx5_0:1 symbol_error"; their values.
using Counters = std::map<std::string, std::uint64_t>;

// Below `sys`, normally "/sys"; those of loopback left out. At most 4096.
Counters read_counters(const std::filesystem::path& sys);

// Those of some devices; all of them if none is named.
Counters counters_of(const Counters& counters, const std::set<std::string>& devices);

// A finding for each counter that grew, with `check` as its name and `when` in its evidence ("since
// the last look"); one that is OK if none did. A counter that shrank was reset: its value counts.
std::vector<Finding> evaluate_counters(const Counters& before, const Counters& now,
                                       const std::string& check, const std::string& when);

// `ddp-check node --counters FILE`: compares with what the file holds and keeps the new values
// there. Without a file nothing can be compared yet; a file that cannot be read is UNKNOWN, and
// replaced. Throws RuntimeError if it cannot be written.
std::vector<Finding> compare_with_kept_counters(const std::string& file, const Counters& now);

}  // namespace ddp::check
