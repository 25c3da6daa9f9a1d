#include "ddp_runtime/check/net/node_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "ddp_runtime/comm/errors.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMostNames = 65536;
constexpr std::size_t kMostDigits = 9;

[[noreturn]] void refuse(std::string_view list, const char* why) {
  throw UsageError(
      fmt::format("'{}' is not a list of nodes as SLURM writes it: {}", list.substr(0, 200), why));
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() &&
                    text.size() <= kMostDigits && value >= 0;
  return good ? std::optional(value) : std::nullopt;
}

// Splits at the commas that are not inside brackets.
std::vector<std::string_view> split_elements(std::string_view list) {
  std::vector<std::string_view> elements;
  std::size_t first = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && !inside)) {
      elements.push_back(list.substr(first, i - first));
      first = i + 1;
      continue;
    }
    if (list[i] == '[' && inside) refuse(list, "a bracket inside a bracket");
    if (list[i] == ']' && !inside) refuse(list, "a closing bracket without an opening one");
    if (list[i] == '[') inside = true;
    if (list[i] == ']') inside = false;
  }
  if (inside) refuse(list, "a bracket is not closed");
  return elements;
}

// "1-3,07" -> 1 2 3 07; numbers are padded with zeros to the width of the first of their range.
std::vector<std::string> expand_group(std::string_view list, std::string_view group) {
  std::vector<std::string> numbers;
  std::size_t first = 0;
  while (first <= group.size()) {
    const std::size_t comma = std::min(group.find(',', first), group.size());
    const std::string_view range = group.substr(first, comma - first);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const std::string_view from = range.substr(0, dash);
    const std::string_view to = dash < range.size() ? range.substr(dash + 1) : from;
    const auto low = whole_number(from);
    const auto high = whole_number(to);
    if (!low || !high || *low > *high) refuse(list, "a range that does not count upwards");
    for (int n = *low; n <= *high; ++n) {
      numbers.push_back(fmt::format("{:0{}}", n, from.size()));
      if (numbers.size() > kMostNames) refuse(list, "it has too many names");
    }
    first = comma + 1;
  }
  return numbers;
}

std::vector<std::string> expand_element(std::string_view list, std::string_view element) {
  std::vector<std::string> names{""};
  std::size_t i = 0;
  while (i < element.size()) {
    const std::size_t open = std::min(element.find('[', i), element.size());
    for (auto& name : names) name += element.substr(i, open - i);
    if (open == element.size()) break;
    const std::size_t close = element.find(']', open);  // split_elements saw to it
    const auto numbers = expand_group(list, element.substr(open + 1, close - open - 1));
    if (names.size() * numbers.size() > kMostNames) refuse(list, "it has too many names");
    std::vector<std::string> longer;
    for (const auto& name : names) {
      for (const auto& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    i = close + 1;
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> names;
  for (const auto element : split_elements(list)) {
    if (element.empty()) refuse(list, "a name is empty");
    for (auto& name : expand_element(list, element)) names.push_back(std::move(name));
    if (names.size() > kMostNames) refuse(list, "it has too many names");
  }
  return names;
}

std::vector<int> expand_task_counts(std::string_view list) {
  std::vector<int> counts;
  for (const auto element : split_elements(list)) {
    const std::size_t paren = std::min(element.find("(x"), element.size());
    std::optional<int> repeats = 1;
    if (paren < element.size()) {
      if (!element.ends_with(')')) refuse(list, "a parenthesis is not closed");
      repeats = whole_number(element.substr(paren + 2, element.size() - paren - 3));
    }
    const auto count = whole_number(element.substr(0, paren));
    if (!count || !repeats) refuse(list, "a count is not a number");
    if (counts.size() + static_cast<std::size_t>(*repeats) > kMostNames) {
      refuse(list, "it has too many names");
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*repeats), *count);
  }
  return counts;
}

}  // namespace ddp::check
