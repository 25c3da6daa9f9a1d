// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/limits_check.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <string>

#include "ddp_runtime/check/findings/byte_units.h"

namespace ddp::check {
namespace {

std::optional<Limit> read_limit(__rlimit_resource resource) noexcept {
  rlimit value{};
  if (getrlimit(resource, &value) != 0) return std::nullopt;
  const auto convert = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? kUnlimited : static_cast<std::uint64_t>(limit);
  };
  return Limit{convert(value.rlim_cur), convert(value.rlim_max)};
}

struct LimitRule {
  const char* check;
  const char* option;        // option of ulimit(1)
  std::uint64_t per_unit;    // bytes or files in one displayed unit
  const char* unit;          // "" or "MiB"
  std::uint64_t warn_below;  // kUnlimited: anything less is a warning
  std::uint64_t critical_below;
  const char* why;
};

std::string shown(std::uint64_t value, const LimitRule& rule) {
  if (value == kUnlimited) return "unlimited";
  return fmt::format("{}{}{}", value / rule.per_unit, *rule.unit == '\0' ? "" : " ", rule.unit);
}

Finding evaluate(const std::optional<Limit>& limit, const LimitRule& rule) {
  Finding finding{.check = rule.check, .severity = Severity::ok, .rule = rule.why};
  finding.expected =
      (rule.warn_below == kUnlimited ? "" : "at least ") + shown(rule.warn_below, rule);
  if (!limit) {
    finding.severity = Severity::unknown;
    finding.evidence = "getrlimit failed";
    finding.action = "run the check on the node itself";
    return finding;
  }
  finding.value = shown(limit->soft, rule);
  if (limit->soft >= rule.warn_below) return finding;
  finding.severity = limit->soft < rule.critical_below ? Severity::critical : Severity::warning;
  finding.evidence = fmt::format("hard limit {}", shown(limit->hard, rule));
  finding.action = fmt::format(
      "raise it (`ulimit {}`; for job steps, in slurmd's unit file and with "
      "PropagateResourceLimits)",
      rule.option);
  return finding;
}

}  // namespace

Limits read_limits() noexcept {
  return {read_limit(RLIMIT_MEMLOCK), read_limit(RLIMIT_NOFILE), read_limit(RLIMIT_NPROC),
          read_limit(RLIMIT_STACK)};
}

std::vector<Finding> evaluate_limits(const Limits& limits, bool has_rdma) {
  const LimitRule rdma_memlock{"limits.memlock",
                               "-l unlimited",
                               kMiB,
                               "MiB",
                               kUnlimited,
                               1024 * kMiB,
                               "RDMA locks the memory it sends from, so there must be no limit"};
  const LimitRule plain_memlock{
      "limits.memlock", "-l", kMiB, "MiB", 0, 0, "without RDMA of jobs, little memory is locked"};
  const LimitRule files{"limits.nofile",
                        "-n",
                        1,
                        "",
                        4096,
                        1024,
                        "every peer and every loader worker needs descriptors"};
  const LimitRule processes{
      "limits.nproc", "-u", 1, "", 4096, 512, "every thread of the user counts"};
  const LimitRule stack{"limits.stack",
                        "-s",
                        kMiB,
                        "MiB",
                        8 * kMiB,
                        kMiB,
                        "compilers and BLAS libraries expect 8 MiB"};
  return {evaluate(limits.locked_memory, has_rdma ? rdma_memlock : plain_memlock),
          evaluate(limits.open_files, files), evaluate(limits.processes, processes),
          evaluate(limits.stack, stack)};
}

}  // namespace ddp::check
