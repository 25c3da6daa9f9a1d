// SPDX-License-Identifier: Apache-2.0
#include "base/duration.h"

#include <array>
#include <cstdio>
#include <limits>

namespace ddp {
namespace {

constexpr double kMinute = 60;
constexpr double kHour = 3600;
constexpr double kDay = 86400;

struct Unit {
  std::string_view name;
  double seconds;
};

constexpr std::array kUnits = {Unit{"d", kDay}, Unit{"h", kHour}, Unit{"min", kMinute},
                               Unit{"m", kMinute}, Unit{"s", 1}};

constexpr bool is_decimal(char c) noexcept {
  return c >= '0' && c <= '9';
}

// Removes digits, with at most one point between them, from the beginning of `text`. Does not use
// strtod, which depends on the locale and accepts signs, exponents, "inf" and "nan".
std::optional<double> take_number(std::string_view& text) noexcept {
  double value = 0;
  double place = 0;  // of the next decimal; 0 before the point
  bool last_is_digit = false;
  while (!text.empty()) {
    const char c = text.front();
    if (is_decimal(c) && place == 0) {
      value = value * 10 + (c - '0');
    } else if (is_decimal(c)) {
      value += place * (c - '0');
      place /= 10;
    } else if (c == '.' && place == 0 && last_is_digit) {
      place = 0.1;
    } else {
      break;
    }
    last_is_digit = is_decimal(c);
    text.remove_prefix(1);
  }
  if (!last_is_digit) return std::nullopt;
  return value;
}

// Removes the letters at the beginning of `text`, which must be a unit. Returns its seconds.
std::optional<double> take_unit(std::string_view& text) noexcept {
  std::size_t length = 0;
  while (length < text.size() && !is_decimal(text[length])) ++length;
  const auto name = text.substr(0, length);
  text.remove_prefix(length);
  for (const auto& unit : kUnits) {
    if (unit.name == name) return unit.seconds;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> parse_duration(std::string_view text) noexcept {
  double seconds = 0;
  double previous_unit = std::numeric_limits<double>::infinity();
  while (!text.empty()) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    const auto unit = take_unit(text);
    if (!unit || *unit >= previous_unit) return std::nullopt;
    previous_unit = *unit;
    seconds += *number * *unit;
  }
  if (!(seconds > 0 && seconds <= kMaxDurationSeconds)) return std::nullopt;
  return seconds;
}

std::string rounded_duration(double seconds) {
  // A unit is used from twice its size, so that 90 s do not become "1.5 min".
  constexpr double kTwice = 2;
  const Unit unit = seconds >= kTwice * kDay      ? Unit{"d", kDay}
                    : seconds >= kTwice * kHour   ? Unit{"h", kHour}
                    : seconds >= kTwice * kMinute ? Unit{"min", kMinute}
                                                  : Unit{"s", 1};
  const double value = seconds / unit.seconds;
  std::array<char, 40> text{};
  // "%.3g" would write 1000 and more with an exponent.
  std::snprintf(text.data(), text.size(), value >= 1000 ? "%.0f %s" : "%.3g %s", value,
                unit.name.data());
  return text.data();
}

}  // namespace ddp
