// SPDX-License-Identifier: Apache-2.0
// Serializes JSON whose strings may come from a user's file name or exception and contain any
// bytes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ddp::comm {

// Replaces bytes that are not UTF-8, because JSON cannot represent them. `indent`: see
// nlohmann::json::dump.
std::string as_text(const nlohmann::json& json, int indent = -1);

}  // namespace ddp::comm
