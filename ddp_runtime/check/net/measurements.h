// What was measured, as it stands in verdict.json: nodes by name, speeds in GB/s.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/retest.h"

namespace ddp::check {

inline constexpr double kMicrosecond = 1e-6;  // of a second, in which latencies are told

// `names`: of the nodes, by the numbers that the results use.
nlohmann::json to_json(const std::vector<PairResult>& results,
                       const std::vector<std::string>& names);
// `rule`: by which each retest cleared its suspect or did not.
nlohmann::json to_json(const std::vector<Retest>& retests, const std::vector<std::string>& names,
                       const PeerRule& rule);

}  // namespace ddp::check
