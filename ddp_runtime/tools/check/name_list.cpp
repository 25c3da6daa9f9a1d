// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/name_list.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/errors.h"

namespace ddp::tools {
namespace {

constexpr std::size_t kMaxLines = 100'000;
constexpr std::size_t kMaxNameLength = 255;

bool is_name(std::string_view text) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return text.find_first_not_of(kAllowed) == text.npos;
}

// Bounded in the length of a line and in the number of lines, because a device or a pipe may never
// end.
void read_names_of(const std::string& file, std::vector<std::string>& names) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UsageError(
        fmt::format("{} is a directory; name a file of node names, one per line", file));
  }
  std::ifstream stream(file);
  if (!stream) throw UsageError(fmt::format("cannot read node names from {}", file));
  std::array<char, kMaxNameLength + 1> line{};  // with the terminating zero
  const auto other_content = [&file] {
    return UsageError(fmt::format("{} does not contain node names, one per line", file));
  };
  std::size_t lines = 0;
  while (stream.getline(line.data(), static_cast<std::streamsize>(line.size()))) {
    // The terminating zero stands in place of the line end, which a last line does not have.
    const auto length = static_cast<std::size_t>(stream.gcount()) - (stream.eof() ? 0 : 1);
    const std::string_view name(line.data(), length);
    if (!is_name(name) || ++lines > kMaxLines) throw other_content();
    if (!name.empty()) names.emplace_back(name);
  }
  if (stream.bad()) throw UsageError(fmt::format("cannot read node names from {}", file));
  if (!stream.eof()) throw other_content();  // the line is too long
}

}  // namespace

std::vector<std::string> read_names(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) read_names_of(file, names);
  return names;
}

}  // namespace ddp::tools
