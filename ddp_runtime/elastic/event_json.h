// SPDX-License-Identifier: Apache-2.0
// Events and actions as JSON objects, one per line of a file:
//
//   {"event": "rank_ended", "generation": 1, "rank": 3, "signal": 9}
//   {"action": "start", "generation": 2, "nodes": ["a", "c"], "restore": "memory@10"}
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

nlohmann::json json_of(const Event& event);
nlohmann::json json_of(const Action& action);

// Throws RuntimeError for anything else.
Event event_from_json(const nlohmann::json& object);

// "none", "disk@41230" or "memory@10".
std::string describe(const State& state);

}  // namespace ddp::elastic
