// SPDX-License-Identifier: Apache-2.0
#include "base/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/errors.h"
#include "base/text.h"

namespace ddp {
namespace {

constexpr std::size_t kMaxDigits = 18;  // fits 64 bits
constexpr std::size_t kMaxNameLength = 255;
constexpr std::size_t kMaxParts = 16;  // SLURM itself stops at 5 bracket groups
constexpr std::uint64_t kMaxNumber = 999'999'999'999'999'999;

struct NumberRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  // digits of the first number; shorter numbers get leading zeros

  std::uint64_t count() const noexcept { return last - first + 1; }
};

// Literal text followed by a bracket group; the last part of an element has no group.
struct Part {
  std::string literal;
  std::vector<NumberRange> ranges;
};

[[noreturn]] void fail(std::string_view list, const std::string& what) {
  throw UsageError("cannot read the node list " + quote_for_display(list) + ": " + what);
}

NumberRange parse_range(std::string_view list, std::string_view text) {
  const auto dash = text.find('-');
  const auto first_text = text.substr(0, dash);
  const auto last_text = dash == std::string_view::npos ? first_text : text.substr(dash + 1);
  const auto first = parse_decimal(first_text, kMaxNumber);
  const auto last = parse_decimal(last_text, kMaxNumber);
  if (!first || !last || first_text.size() > kMaxDigits || last_text.size() > kMaxDigits) {
    fail(list, quote_for_display(text) + " is not a number or a range of numbers");
  }
  if (*first > *last) fail(list, "the range " + quote_for_display(text) + " runs backwards");
  return {*first, *last, first_text.size()};
}

// Removes the element at the front of `rest`, which ends at a comma outside brackets, and returns
// it. `list` is the whole text, for error messages.
std::string_view take_element(std::string_view list, std::string_view& rest) {
  bool inside = false;
  std::size_t end = 0;
  for (; end < rest.size() && (inside || rest[end] != ','); ++end) {
    if (rest[end] == '[' && inside) fail(list, "a bracket inside a bracket");
    if (rest[end] == ']' && !inside) fail(list, "']' without '['");
    if (rest[end] == '[') inside = true;
    if (rest[end] == ']') inside = false;
  }
  if (inside) fail(list, "'[' without ']'");
  const auto element = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return element;
}

std::size_t longest_name(const std::vector<Part>& parts) {
  std::size_t length = 0;
  for (const auto& part : parts) {
    std::size_t digits = 0;
    for (const auto& range : part.ranges) {
      digits = std::max({digits, range.width, std::to_string(range.last).size()});
    }
    length += part.literal.size() + digits;
  }
  return length;
}

std::vector<Part> parse_element(std::string_view list, std::string_view element) {
  if (element.empty()) fail(list, "it contains an empty name");
  std::vector<Part> parts;
  while (!element.empty()) {
    const auto open = element.find('[');
    Part part{std::string(element.substr(0, open)), {}};
    if (!part.literal.empty() && !is_host_or_address(part.literal)) {
      fail(list, quote_for_display(part.literal) + " is not part of a host name");
    }
    element.remove_prefix(std::min(open, element.size()));
    if (!element.empty()) {
      const auto close = element.find(']');
      for (const auto range : split(element.substr(1, close - 1), ',')) {
        part.ranges.push_back(parse_range(list, range));
      }
      element.remove_prefix(close + 1);
    }
    parts.push_back(std::move(part));
    if (parts.size() > kMaxParts) fail(list, "too many brackets in one name");
  }
  if (longest_name(parts) > kMaxNameLength) fail(list, "it contains a name that is too long");
  return parts;
}

// The number of names that an element stands for, or kMaxHosts + 1 if it exceeds kMaxHosts. Checks
// after each factor, so that no product overflows.
std::size_t count_names(const std::vector<Part>& parts) {
  std::uint64_t names = 1;
  for (const auto& part : parts) {
    if (part.ranges.empty()) continue;
    std::uint64_t choices = 0;
    for (const auto& range : part.ranges) {
      choices = std::min<std::uint64_t>(
          choices + std::min<std::uint64_t>(range.count(), kMaxHosts + 1), kMaxHosts + 1);
    }
    names = std::min<std::uint64_t>(names * choices, kMaxHosts + 1);
  }
  return names;
}

std::string padded(std::uint64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

void append_names(const std::vector<Part>& parts, std::size_t at, const std::string& prefix,
                  std::vector<std::string>& names) {
  if (at == parts.size()) {
    names.push_back(prefix);
    return;
  }
  const std::string start = prefix + parts[at].literal;
  if (parts[at].ranges.empty()) return append_names(parts, at + 1, start, names);
  for (const auto& range : parts[at].ranges) {
    for (std::uint64_t i = 0; i < range.count(); ++i) {
      append_names(parts, at + 1, start + padded(range.first + i, range.width), names);
    }
  }
}

struct NumberedName {
  std::string_view prefix;
  std::string_view digits;
  std::uint64_t number = 0;
};

// Returns nullopt if the name does not end in a number of at most 9 digits.
std::optional<NumberedName> numbered(std::string_view name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  const std::size_t begin = end == std::string_view::npos ? 0 : end + 1;
  NumberedName result{name.substr(0, begin), name.substr(begin), 0};
  if (result.digits.empty() || result.digits.size() > 9) return std::nullopt;
  std::from_chars(result.digits.data(), result.digits.data() + result.digits.size(), result.number);
  return result;
}

bool follows(const NumberedName& one, const NumberedName& next) {
  const bool zero_padded = one.digits.starts_with('0') || next.digits.starts_with('0');
  return one.prefix == next.prefix && next.number == one.number + 1 &&
         (!zero_padded || one.digits.size() == next.digits.size());
}

// Returns "1-3,7" for names that share a prefix.
std::string ranges_of(const std::vector<NumberedName>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size();) {
    std::size_t last = i;
    while (last + 1 < names.size() && follows(names[last], names[last + 1])) ++last;
    text += text.empty() ? "" : ",";
    text += names[i].digits;
    if (last > i) text.append("-").append(names[last].digits);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view text) {
  if (text.size() > kMaxListText) {
    fail(text, "it is longer than " + std::to_string(kMaxListText) + " characters");
  }
  std::vector<std::string> names;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto element = take_element(text, rest);
    const auto parts = parse_element(text, element);
    if (names.size() + count_names(parts) > kMaxHosts) {
      fail(text, "it stands for more than " + std::to_string(kMaxHosts) + " nodes");
    }
    append_names(parts, 0, "", names);
  }
  if (!text.empty() && text.back() == ',') fail(text, "it contains an empty name");
  return names;
}

std::string compress_hostlist(std::span<const std::string> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size();) {
    text += text.empty() ? "" : ",";
    std::vector<NumberedName> group;
    for (std::size_t j = i; j < names.size(); ++j) {
      const auto name = numbered(names[j]);
      if (!name || (!group.empty() && name->prefix != group.front().prefix)) break;
      group.push_back(*name);
    }
    if (group.size() < 2) {
      text += names[i++];
      continue;
    }
    text.append(group.front().prefix).append("[").append(ranges_of(group)).append("]");
    i += group.size();
  }
  return text;
}

}  // namespace ddp
