// SPDX-License-Identifier: Apache-2.0
// Environment variables of a test.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ddp_runtime/check/findings/environment.h"

namespace ddp::check {

using Variables = std::map<std::string, std::string>;

inline Environment environment_of(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace ddp::check
