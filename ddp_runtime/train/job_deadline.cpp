// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/job_deadline.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>

#include "base/subprocess.h"

namespace ddp::train {
namespace {

// Removes the number at the beginning of `text` and returns it; nullopt if there is none.
std::optional<std::int64_t> take_number(std::string_view& text) noexcept {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > 1000000) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

constexpr std::size_t kMaxOutput = 1 << 20;  // an array of SLURM's default size takes 20 kB

// All ranks wait for this call, so a SLURM controller that does not respond must not block it.
constexpr auto kSqueueTimeout = std::chrono::seconds(30);

}  // namespace

std::optional<std::chrono::seconds> parse_time_left(std::string_view text) noexcept {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::int64_t days = 0;
  auto number = take_number(text);
  if (!number) return std::nullopt;
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    days = *number;
    number = take_number(text);
    if (!number) return std::nullopt;
  }
  std::int64_t seconds = *number;
  for (int colons = 0; text.starts_with(':'); ++colons) {
    text.remove_prefix(1);
    number = take_number(text);
    if (!number || colons == 2) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  if (!text.empty()) return std::nullopt;
  return std::chrono::seconds(days * 86400 + seconds);
}

std::optional<std::chrono::seconds> parse_time_left_of(std::string_view job,
                                                       std::string_view lines) noexcept {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (!line.starts_with(job)) continue;
    line.remove_prefix(job.size());
    const std::size_t time = line.find_first_not_of(' ');
    if (time == 0 || time == std::string_view::npos) continue;  // a longer id, or no time after it
    return parse_time_left(line.substr(time));
  }
  return std::nullopt;
}

std::optional<Deadline> job_deadline() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) return std::nullopt;
  const std::string id(job);
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const auto lines =
      output_of({"squeue", "-h", "-j", id, "-o", "%A %L"}, kSqueueTimeout, kMaxOutput);
  const auto left = lines ? parse_time_left_of(id, *lines) : std::nullopt;
  if (!left) return std::nullopt;
  return Clock::now() + *left;
}

}  // namespace ddp::train
