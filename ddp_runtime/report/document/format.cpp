// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/document/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace ddp::report {

std::string significant(double value) {
  if (!std::isfinite(value)) return kAbsent;
  const double size = std::abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-6)) return fmt::format("{:.2e}", value);
  if (size == 0) return "0";
  // Number of decimals that leaves three digits, counted after rounding: 9.996 is 10.0.
  const int magnitude = static_cast<int>(std::floor(std::log10(size * (1 + 5e-4))));
  return fmt::format("{:.{}f}", value, std::clamp(2 - magnitude, 0, 9));
}

std::string compact(double value) {
  const double size = std::abs(value);
  if (!(size >= 1e4) || size >= 1e18) return significant(value);
  constexpr std::string_view kLetters = "kMGTP";
  const int power = static_cast<int>(std::floor(std::log10(size * (1 + 5e-4)) / 3));
  return significant(value / std::pow(1000.0, power)) +
         kLetters[static_cast<std::size_t>(power - 1)];
}

std::string percent(double fraction) {
  if (!std::isfinite(fraction)) return kAbsent;
  if (std::abs(fraction) >= 1e4) return fmt::format("{:.1e} %", 100 * fraction);
  const std::string text = fmt::format("{:.1f} %", 100 * fraction);
  return text == "-0.0 %" ? "0.0 %" : text;
}

std::string signed_percent(double fraction) {
  return fmt::format("{}{}", fraction > 0 ? "+" : "", percent(fraction));
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

std::string milliseconds(double seconds) {
  return significant(1000 * seconds);
}

std::string shortened(const std::string& name) {
  constexpr std::size_t kMax = 80;
  std::size_t characters = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(name[i]) & 0xC0U) != 0x80;
    if (starts && ++characters > kMax) return name.substr(0, i) + "…";
  }
  return name;
}

}  // namespace ddp::report
