// SPDX-License-Identifier: Apache-2.0
// Parses JSON of unknown origin: from files that others may write, and from other processes.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"

namespace ddp {

// Maximum nesting depth, counting the outermost value as one.
inline constexpr int kMaxJsonDepth = 32;

// Callers limit the size of the text.
struct JsonLimits {
  int depth = kMaxJsonDepth;
  std::size_t values = 16'000'000;  // names of members included
};

// The text is not JSON, or exceeds the limits.
class JsonError : public RuntimeError {
 public:
  using RuntimeError::RuntimeError;
};

// Nothing is wrong with the text, but this process might not have the memory to parse it.
class JsonMemoryError : public JsonError {
 public:
  using JsonError::JsonError;
};

// Parses with limits, so that a small text cannot use much memory or stack, and rejects objects
// that have a name twice. Throws JsonError; its message does not name the source.
nlohmann::json parse_bounded_json(std::string_view text, JsonLimits limits = {});

// For callers that ignore such texts: returns null instead of throwing.
nlohmann::json parse_bounded_json_or_null(std::string_view text, JsonLimits limits = {});

}  // namespace ddp
