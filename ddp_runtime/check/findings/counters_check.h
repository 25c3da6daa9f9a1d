// SPDX-License-Identifier: Apache-2.0
// Error counters of network interfaces and InfiniBand ports. They count from boot, so only their
// increase since an earlier reading is meaningful.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

// "eth0 rx_crc_errors", "mlx5_0:1 symbol_error" and their values.
using Counters = std::map<std::string, std::uint64_t>;

// Reads the counters below `sys`, normally "/sys", except those of loopback. At most 4096.
Counters read_counters(const std::filesystem::path& sys);

// The counters of some devices, or of all devices if none is named.
Counters counters_of(const Counters& counters, const std::set<std::string>& devices);

// Returns one finding for each counter that increased, with the name `check` and with `when`
// ("since the last check") in its evidence, or one OK finding if none increased. A counter that
// decreased was reset, so its current value is the increase.
std::vector<Finding> evaluate_counters(const Counters& before, const Counters& now,
                                       const std::string& check, const std::string& when);

// `ddp-check node --counters FILE`: compares with the values in the file and stores the new ones.
// If the file does not exist, there is no baseline yet. An unreadable file is UNKNOWN and is
// replaced. Throws RuntimeError if the file cannot be written.
std::vector<Finding> compare_with_kept_counters(const std::string& file, const Counters& now);

}  // namespace ddp::check
