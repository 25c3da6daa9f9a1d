// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/text.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::launch {

std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 14'695'981'039'346'656'037ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1'099'511'628'211ULL;
  }
  return hash;
}

std::string endpoint(std::string_view host, std::string_view port) {
  const bool is_v6 = host.find(':') != std::string_view::npos && !host.starts_with("[");
  std::string text(is_v6 ? "[" : "");
  text.append(host).append(is_v6 ? "]:" : ":").append(port);
  return text;
}

bool is_given_host(std::string_view text) noexcept {
  return is_host_or_address(text) && std::count(text.begin(), text.end(), ':') != 1;
}

}  // namespace ddp::launch
