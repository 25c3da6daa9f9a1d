// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/secret/text.h"

#include <nlohmann/json.hpp>

namespace ddp::comm {

std::string as_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace ddp::comm
