// What becomes of measured times: percentiles, the slowest rank's, ratios with their spread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "ddp_runtime/comm/group.h"

namespace ddp::bench {

double median(const std::vector<double>& values);

// {"p10": ..., "p50": ..., "p90": ...}
nlohmann::json percentiles(const std::vector<double>& values);

// Collective. A step is as slow as its slowest rank: the largest of each over all ranks.
std::vector<double> slowest(comm::Group& group, std::vector<double> seconds);

// The ratio of the medians of each pair of blocks that ran in one round. What slows a machine down
// for longer than a round hits both, so their spread tells how far the ratio can be trusted.
std::vector<double> block_ratios(const std::vector<double>& ours, const std::vector<double>& theirs,
                                 std::int64_t block);

}  // namespace ddp::bench
