// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/ranks/job_deadline.h"

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

constexpr const char* kEndVariable = "SLURM_JOB_END_TIME";

// The end of the job as of its start, which SLURM passes to the job's processes.
std::optional<Deadline> deadline_of_start() {
  const char* const text = std::getenv(kEndVariable);
  const std::string_view digits(text == nullptr ? "" : text);
  std::int64_t unix_seconds = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), unix_seconds);
  constexpr std::int64_t kMost = 100'000'000'000;
  const bool whole = end == digits.data() + digits.size();
  if (error != std::errc() || !whole || unix_seconds <= 0 || unix_seconds > kMost) return {};
  const auto left = std::chrono::sys_seconds(std::chrono::seconds(unix_seconds)) -
                    std::chrono::system_clock::now();
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(left);
}

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

JobEnd job_end() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) return {};
  const std::string id(job);
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos) return {};
  const auto lines =
      output_of({"squeue", "-h", "-j", id, "-o", "%A %L"}, kSqueueTimeout, kMaxOutput);
  if (lines && !lines->empty()) {
    const auto left = parse_time_left_of(id, *lines);
    return left ? JobEnd{Clock::now() + *left, {}} : JobEnd{};
  }
  if (const auto deadline = deadline_of_start()) return {deadline, {}};
  const char* const problem =
      std::getenv(kEndVariable) == nullptr ? "is not set" : "is not a time in seconds since 1970";
  return {std::nullopt, "the time limit of job " + id +
                            " is unknown, because squeue does not answer and " + kEndVariable +
                            " " + problem +
                            ": the run saves early only if a signal announces the end (sbatch "
                            "--signal=TERM@120)"};
}

}  // namespace ddp::train
