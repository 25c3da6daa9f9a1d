// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/command_line.h"

#include <algorithm>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::spank {

bool has_own_option(std::initializer_list<std::string_view> beginnings) noexcept {
  constexpr std::size_t kMaxCommandLine = 1U << 20U;
  try {
    const auto words = read_text("/proc/self/cmdline", kMaxCommandLine);
    if (!words) return false;
    for (const auto word : split(*words, '\0')) {
      const auto begins = [word](std::string_view text) { return word.starts_with(text); };
      if (std::any_of(beginnings.begin(), beginnings.end(), begins)) return true;
      if (word == "--") return false;
    }
  } catch (...) {  // out of memory
  }
  return false;
}

}  // namespace ddp::spank
