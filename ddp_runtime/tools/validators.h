// SPDX-License-Identifier: Apache-2.0
// Validators of option values with readable messages; the validators of CLI11 print the limits of
// double.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

namespace ddp::tools {

inline CLI::Validator number_check(const char* description, bool (*accepts)(double)) {
  return {[=](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && accepts(value)) return {};
            return "'" + text + "' is not " + description;
          },
          ""};
}

inline CLI::Validator positive() {
  return number_check("a number above 0", [](double v) { return v > 0; });
}

inline CLI::Validator at_least_one() {
  return number_check("a number of at least 1", [](double v) { return v >= 1; });
}

inline CLI::Validator not_negative() {
  return number_check("a number of at least 0", [](double v) { return v >= 0; });
}

inline CLI::Validator fraction() {
  return number_check("a number from 0 to 1", [](double v) { return v >= 0 && v <= 1; });
}

// A variable of a script that is not set gives an empty text, which would mean "none".
inline CLI::Validator not_empty() {
  return {[](std::string& text) -> std::string {
            if (!text.empty()) return {};
            return "the name is empty, as with a variable that is not set; give one, or leave the "
                   "option out";
          },
          ""};
}

// A whole number. Conversions of older CLI11 do not notice an overflow, and take -1 for the largest
// unsigned number. long double holds all 64-bit numbers exactly.
inline CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {[=](std::string& text) -> std::string {
            long double value = 0;
            const bool within = CLI::detail::lexical_cast(text, value) &&
                                value >= static_cast<long double>(least) &&
                                value <= static_cast<long double>(most);
            if (within) return {};
            return "'" + text + "' is not a number from " + std::to_string(least) + " to " +
                   std::to_string(most);
          },
          ""};
}

// A size in MiB that can be converted to bytes.
inline constexpr double kMaxMiB = 1e12;

inline CLI::Validator size_in_mib() {
  return number_check("a number above 0 and at most 1e12",
                      [](double v) { return v > 0 && v <= kMaxMiB; });
}

inline CLI::Validator size_in_mib_or_zero() {
  return number_check("a number from 0 to 1e12", [](double v) { return v >= 0 && v <= kMaxMiB; });
}

// Replaces CLI::Range, which accepts NaN as a number in any range.
inline CLI::Validator number_between(double least, double most) {
  const CLI::Range range(least, most);
  return {[range](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && std::isnan(value)) {
              return "'" + text + "' is not a number";
            }
            return range(text);
          },
          range.get_description()};
}

// Converts seconds from the command line; limited to ten years.
inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 3e8) * 1000));
}

}  // namespace ddp::tools
