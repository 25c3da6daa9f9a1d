#include "spank_plugin/launch/text.h"

#include <algorithm>

namespace ddp::launch {
namespace {

// Not std::isalnum: that depends on the locale, and has undefined behavior for negative chars.
bool is_alphanumeric(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_one_of(char c, std::string_view set) noexcept {
  return set.find(c) != std::string_view::npos;
}

}  // namespace

std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max) noexcept {
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (max - std::min(max, digit)) / 10) return std::nullopt;
    value = value * 10 + digit;
    if (value > max) return std::nullopt;
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const auto end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = "'";
  for (const char c : text.substr(0, kShown)) shown += (c >= ' ' && c <= '~') ? c : '?';
  return shown + (text.size() > kShown ? "...'" : "'");
}

std::string shell_word(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || is_one_of(c, "_./:@%+,=-");
  });
  if (plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

bool is_host_or_address(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 255 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || is_one_of(c, "._-:%");
  });
}

std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 14'695'981'039'346'656'037ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1'099'511'628'211ULL;
  }
  return hash;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string shown(text.substr(0, limit));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  if (text.size() > limit) shown += "...";
  return shown;
}

std::string endpoint(std::string_view host, std::string_view port) {
  const bool is_v6 = host.find(':') != std::string_view::npos && !host.starts_with("[");
  std::string text(is_v6 ? "[" : "");
  text.append(host).append(is_v6 ? "]:" : ":").append(port);
  return text;
}

}  // namespace ddp::launch
