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
