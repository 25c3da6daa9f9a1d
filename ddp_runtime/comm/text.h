// Texts for others: they may hold anything that a user's file name or exception holds, and must
// travel and be written down all the same.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ddp::comm {

// The beginning of a UTF-8 text, at most so many bytes, without a half character at its end.
std::string_view beginning_of(std::string_view text, std::size_t bytes) noexcept;

// What is no UTF-8 is replaced: JSON cannot hold it. `indent`: see nlohmann::json::dump.
std::string as_text(const nlohmann::json& json, int indent = -1);

}  // namespace ddp::comm
