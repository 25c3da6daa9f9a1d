// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/hugepages_check.h"

#include <fmt/format.h>

#include <charconv>

#include "ddp_runtime/check/findings/byte_units.h"

namespace ddp::check {
namespace {

// A larger fraction of memory in unused huge pages is reported, because the job cannot use it.
constexpr double kMaxIdle = 0.1;

std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view key) {
  std::size_t at = text.starts_with(key) ? 0 : text.find(fmt::format("\n{}", key));
  if (at == text.npos) return std::nullopt;
  at = text.find_first_not_of(' ', text.find(':', at) + 1);
  std::uint64_t number = 0;
  if (at == text.npos) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::uint64_t> bytes_behind(std::string_view text, std::string_view key) {
  const auto kibibytes = number_behind(text, key);
  return kibibytes && *kibibytes < UINT64_MAX / 1024 ? std::optional(*kibibytes * 1024)
                                                     : std::nullopt;
}

}  // namespace

HugepageFacts parse_hugepages(std::string_view text) {
  return {bytes_behind(text, "MemTotal:"), number_behind(text, "HugePages_Total:"),
          number_behind(text, "HugePages_Free:"), bytes_behind(text, "Hugepagesize:")};
}

std::vector<Finding> evaluate_hugepages(const HugepageFacts& facts) {
  Finding finding{.check = "memory.hugepages",
                  .severity = Severity::ok,
                  .unit = "pages",
                  .rule = "some huge pages are free, and few are unused"};
  if (facts.memory_bytes && !facts.total) return {};
  if (!facts.memory_bytes || !facts.free || !facts.page_bytes) {
    finding.severity = Severity::unknown;
    finding.evidence = "/proc/meminfo does not report it";
    finding.action = "check that /proc is visible";
    return {finding};
  }
  finding.value = static_cast<double>(*facts.total);
  const double idle = static_cast<double>(*facts.free) * static_cast<double>(*facts.page_bytes);
  if (*facts.total > 0 && *facts.free == 0) {
    finding.severity = Severity::warning;
    finding.evidence = "all of them are in use";
    finding.action = "kill processes left over from an earlier job, or reserve more";
  } else if (idle > kMaxIdle * static_cast<double>(*facts.memory_bytes)) {
    finding.severity = Severity::warning;
    finding.evidence = fmt::format("{:.0f} MiB in unused huge pages, out of {} MiB", idle / kMiB,
                                   *facts.memory_bytes / kMiB);
    finding.action = "lower vm.nr_hugepages unless the job needs them";
  }
  return {finding};
}

}  // namespace ddp::check
