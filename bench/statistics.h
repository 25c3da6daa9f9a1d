// SPDX-License-Identifier: Apache-2.0
// Statistics of measured times: percentiles, the slowest rank's times, ratios and their spread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::bench {

double median(const std::vector<double>& values);

// {"p10": ..., "p50": ..., "p90": ...}
nlohmann::json percentiles(const std::vector<double>& values);

// Collective. Returns the maximum of each time over all ranks, because a step takes as long as on
// its slowest rank.
std::vector<double> slowest(comm::Group& group, std::vector<double> seconds);

// The ratios of the medians of two blocks that ran in the same round. A slowdown of the machine
// that lasts longer than a round affects both, so the spread shows how reliable the ratio is.
std::vector<double> block_ratios(const std::vector<double>& ours, const std::vector<double>& theirs,
                                 std::int64_t block);

}  // namespace ddp::bench
