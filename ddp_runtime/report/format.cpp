#include "ddp_runtime/report/format.h"

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
  // Decimals that leave three digits, counted after rounding: 9.996 is 10.0.
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
  const std::string text = fmt::format("{:.1f} %", 100 * fraction);
  return text == "-0.0 %" ? "0.0 %" : text;
}

std::string milliseconds(double seconds) {
  return significant(1000 * seconds);
}

}  // namespace ddp::report
