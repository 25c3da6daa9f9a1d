#include "spank_plugin/fabric/text.h"

#include <algorithm>
#include <charconv>

namespace ddp::fabric {
namespace {

bool is_printable(char c) noexcept {
  return c >= ' ' && c <= '~';
}

bool is_word(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::optional<std::uint32_t> parse_number(std::string_view text, int base) noexcept {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator, std::size_t most) {
  std::vector<std::string_view> pieces;
  while (pieces.size() < most) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return pieces;
}

std::vector<std::string_view> words_of(std::string_view text, std::size_t most) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string_view> words;
  while (words.size() < most) {
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) break;
    text.remove_prefix(first);
    const std::size_t end = std::min(text.find_first_of(kSpace), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

std::optional<std::uint32_t> parse_decimal(std::string_view text) noexcept {
  return parse_number(text, 10);
}

std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) noexcept {
  return parse_number(text, 16);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const auto& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = "'";
  for (const char c : text.substr(0, kShown)) shown += is_printable(c) ? c : '?';
  return shown + (text.size() > kShown ? "...'" : "'");
}

bool is_variable_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 128 && !(text.front() >= '0' && text.front() <= '9') &&
         std::all_of(text.begin(), text.end(), is_word);
}

bool is_plain_value(std::string_view text) noexcept {
  return text.size() <= 1024 && std::all_of(text.begin(), text.end(), is_printable);
}

bool is_interface_name(std::string_view text) noexcept {
  return text.size() <= 15 && is_device_name(text);
}

bool is_device_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 63 && text.front() != '^' && text.front() != '=' &&
         text.find_first_of(",:/ ") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), is_printable);
}

}  // namespace ddp::fabric
