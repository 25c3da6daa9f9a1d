#include "ddp_runtime/comm/text.h"

#include <nlohmann/json.hpp>

namespace ddp::comm {

std::string_view beginning_of(std::string_view text, std::size_t bytes) noexcept {
  if (text.size() <= bytes) return text;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
  };
  // No character has more than three bytes that continue it; what has is not UTF-8 anyway.
  std::size_t end = bytes;
  for (int i = 0; i < 3 && end > 0 && continues(end); ++i) --end;
  return text.substr(0, continues(end) ? bytes : end);
}

std::string as_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace ddp::comm
