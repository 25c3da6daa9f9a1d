// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/files/attribute.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/open_file.h"
#include "base/text.h"

namespace ddp::fabric {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

std::optional<std::string> read_attribute(const std::filesystem::path& file) {
  std::array<char, kPage + 1> buffer{};
  const auto size = OpenFile(file).read(buffer.data(), buffer.size());
  if (!size || *size > kPage) return std::nullopt;
  return std::string(trimmed({buffer.data(), *size}));
}

std::optional<std::int64_t> read_integer(const std::filesystem::path& file) {
  const auto text = read_attribute(file);
  if (!text) return std::nullopt;
  std::string_view digits = *text;
  const bool hexadecimal = digits.starts_with("0x");
  if (hexadecimal) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::string> read_link_name(const std::filesystem::path& link) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(link, error);
  if (error || target.filename().empty()) return std::nullopt;
  return target.filename().string();
}

std::vector<std::string> list_names(const std::filesystem::path& directory, std::size_t most) {
  std::vector<std::string> names;
  std::error_code error;
  auto entry = std::filesystem::directory_iterator(directory, error);
  const std::filesystem::directory_iterator end;
  while (!error && entry != end && names.size() < most) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ddp::fabric
