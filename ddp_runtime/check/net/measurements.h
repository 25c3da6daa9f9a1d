// SPDX-License-Identifier: Apache-2.0
// Converts the measurements to the JSON of verdict.json: nodes by name, speeds in GB/s.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/retest.h"

namespace ddp::check {

inline constexpr double kMicrosecond = 1e-6;  // in seconds; unit of reported latencies

// `names`: names of the nodes, indexed by the numbers in the results.
nlohmann::json to_json(const std::vector<PairResult>& results,
                       const std::vector<std::string>& names);
// `rule`: the rule that decided the outcome of each retest.
nlohmann::json to_json(const std::vector<Retest>& retests, const std::vector<std::string>& names,
                       const PeerRule& rule);

}  // namespace ddp::check
