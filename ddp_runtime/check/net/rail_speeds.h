// SPDX-License-Identifier: Apache-2.0
// Compares the rails of RDMA with each other: a rail may be slow on all nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"

namespace ddp::check {

struct RailSpeed {
  std::string rail;
  std::optional<double> rate;  // see rate_of() in rdma_rails.h
  PairSummary measured;
};

// "; RDMA 24.4 GB/s over each of mlx5_1:1 mlx5_2:1 (lowest 23.9 over mlx5_2:1)": the median of the
// rails' medians. Empty if nothing was measured.
std::string rail_speeds_text(const std::vector<RailSpeed>& speeds);

// A rail that is slow on all nodes, which no comparison of nodes finds: WARNING below 80 % of the
// median of three or more rails with the same rate.
std::vector<Finding> evaluate_rail_speeds(const std::vector<RailSpeed>& speeds);

}  // namespace ddp::check
