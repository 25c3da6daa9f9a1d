// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <algorithm>

#include "base/open_file.h"

namespace ddp {

std::optional<std::string> read_text(const std::filesystem::path& file, std::size_t max_bytes) {
  constexpr std::size_t kStep = 16'384;
  const OpenFile opened(file);
  if (!opened.is_regular()) return std::nullopt;
  std::string text;
  while (text.size() < max_bytes) {
    const std::size_t before = text.size();
    const std::size_t room = std::min(kStep, max_bytes - before);
    text.resize(before + room);
    const auto size = opened.read(text.data() + before, room);
    if (!size) return std::nullopt;
    text.resize(before + *size);
    if (*size < room) break;
  }
  return text;
}

std::string read_kernel_file(const std::filesystem::path& file) {
  constexpr std::size_t kMost = 1U << 16U;
  return read_text(file, kMost).value_or("");
}

}  // namespace ddp
