// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/node/running_jobs.h"

namespace ddp::check {
namespace {

// "MemTotal:       24651180 kB"
std::optional<std::uint64_t> bytes_of(std::string_view text, std::string_view key) {
  std::size_t at = text.find(key);
  if (at == std::string_view::npos || (at > 0 && text[at - 1] != '\n')) return std::nullopt;
  at = text.find_first_not_of(' ', at + key.size());
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t kibibytes = 0;
  const auto result = std::from_chars(text.data() + at, text.data() + text.size(), kibibytes);
  if (result.ec != std::errc() || kibibytes > UINT64_MAX / 1024) return std::nullopt;
  return kibibytes * 1024;
}

}  // namespace

MemoryFacts parse_meminfo(std::string_view text) {
  return {bytes_of(text, "MemTotal:"), bytes_of(text, "MemAvailable:")};
}

Finding evaluate_memory(const MemoryFacts& facts, bool a_job_runs) {
  Finding finding{.check = "memory.available",
                  .severity = Severity::ok,
                  .unit = "MiB",
                  .rule = "at least 1 GiB and 5 % of the memory are available"};
  if (!facts.total_bytes || !facts.available_bytes) {
    finding.severity = Severity::unknown;
    finding.evidence = "/proc/meminfo does not report it";
    finding.action = "check that /proc is visible";
    return finding;
  }
  const std::uint64_t wanted = std::max(1024 * kMiB, *facts.total_bytes / 20);
  const std::uint64_t available = *facts.available_bytes / kMiB;
  finding.value = static_cast<double>(available);
  finding.expected = fmt::format("at least {} MiB", wanted / kMiB);
  finding.evidence = fmt::format("out of {} MiB", *facts.total_bytes / kMiB);
  if (*facts.available_bytes >= wanted) return finding;
  finding.severity = *facts.available_bytes < wanted / 4 ? Severity::critical : Severity::warning;
  finding.action = "look for processes left over from earlier jobs";
  if (a_job_runs) excuse_for_a_job(finding);
  return finding;
}

}  // namespace ddp::check
