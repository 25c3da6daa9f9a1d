// SPDX-License-Identifier: Apache-2.0
// Formatting of sizes, times, tables, JSON and progress for a terminal.

#include "ddp_runtime/tools/ckpt/text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace ddp::ckpt::tool {

namespace {

constexpr std::size_t kWidestColumn = 60;
constexpr double kTellingSeconds = 1;

std::string time_left_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min", (whole + 59) / 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string json_text(const nlohmann::json& json) {
  return json.dump(1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string time_text(std::int64_t unix_seconds) {
  constexpr std::int64_t kYear9999 = 253402300799;  // the limit of the formatter
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::gmtime(static_cast<std::time_t>(std::min(unix_seconds, kYear9999))));
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], std::min(row[i].size(), kWidestColumn));
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          double seconds) {
  const double part = total != 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  std::string text = fmt::format("{}: {:.0f} %, {} of {}", what, std::floor(part * 100),
                                 size_text(done), size_text(total));
  if (seconds < kTellingSeconds || done == 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  text += fmt::format(", {}/s", size_text(static_cast<std::uint64_t>(rate)));
  if (done < total)
    text += fmt::format(", {} left", time_left_text(static_cast<double>(total - done) / rate));
  return text;
}

Progress terminal_progress(const std::string& what) {
  if (::isatty(STDERR_FILENO) == 0) return {};
  using Clock = std::chrono::steady_clock;
  return [what, began = Clock::now(), shown = std::uint64_t{101}](std::uint64_t done,
                                                                  std::uint64_t total) mutable {
    const std::uint64_t percent = total != 0 ? done / (total / 100 + 1) : 100;
    if (done != total && percent == shown) return;
    shown = percent;
    const bool finished = done == total;  // the line is then cleared
    const std::chrono::duration<double> taken = Clock::now() - began;
    fmt::print(stderr, "\r{}\033[K",
               finished ? "" : progress_text(what, done, total, taken.count()));
    static_cast<void>(std::fflush(stderr));
  };
}

}  // namespace ddp::ckpt::tool
