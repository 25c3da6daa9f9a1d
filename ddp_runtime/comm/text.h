// SPDX-License-Identifier: Apache-2.0
// JSON for others: its texts may hold anything that a user's file name or exception holds, and must
// travel and be written down all the same.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ddp::comm {

// What is not UTF-8 is replaced: JSON cannot hold it. `indent`: see nlohmann::json::dump.
std::string as_text(const nlohmann::json& json, int indent = -1);

}  // namespace ddp::comm
