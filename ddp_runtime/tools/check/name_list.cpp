// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/name_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/errors.h"

namespace ddp::tools {
namespace {

constexpr std::size_t kMaxNames = 100'000;
constexpr std::size_t kMaxNameLength = 255;

bool is_name(const std::string& text) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return text.size() <= kMaxNameLength && text.find_first_not_of(kAllowed) == std::string::npos;
}

}  // namespace

std::vector<std::string> read_names(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) {
    std::ifstream stream(file);
    if (!stream) throw UsageError(fmt::format("cannot read node names from {}", file));
    for (std::string line; std::getline(stream, line);) {
      if (line.empty()) continue;
      if (!is_name(line) || names.size() >= kMaxNames) {
        throw UsageError(fmt::format("{} does not contain node names, one per line", file));
      }
      names.push_back(line);
    }
  }
  return names;
}

}  // namespace ddp::tools
