// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/document/table.h"

#include <fmt/format.h>

#include <cmath>

#include "ddp_runtime/report/document/format.h"

namespace ddp::report {

std::string text_of(const Cell& cell, Show show) {
  if (const auto* words = std::get_if<std::string>(&cell)) return words->empty() ? kAbsent : *words;
  const auto* number = std::get_if<double>(&cell);
  if (number == nullptr || !std::isfinite(*number)) return kAbsent;
  switch (show) {
    case Show::count:
      return fmt::format("{:.0f}", *number);
    case Show::percent:
      return percent(*number);
    case Show::milliseconds:
      return milliseconds(*number);
    case Show::text:
      if (*number == std::round(*number) && std::abs(*number) < 1e15) {
        return fmt::format("{:.0f}", *number);
      }
      break;
    case Show::significant:
      break;
  }
  return significant(*number);
}

}  // namespace ddp::report
