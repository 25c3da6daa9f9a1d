// SPDX-License-Identifier: Apache-2.0
// Durations as people write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp {

// The longest duration that parse_duration() accepts: ten years, in seconds.
inline constexpr double kMaxDurationSeconds = 10 * 365.25 * 86400;

// Parses "90s", "10min" (or "10m"), "1.5h", "2d", or several of them with decreasing units, such as
// "1h30min". Returns seconds; nullopt for any other text, including a number without a unit, and
// for 0 and durations above kMaxDurationSeconds.
std::optional<double> parse_duration(std::string_view text) noexcept;

// "45 s", "4.2 min", "2.5 h" or "110 d": about three digits of a duration in seconds.
std::string rounded_duration(double seconds);

}  // namespace ddp
