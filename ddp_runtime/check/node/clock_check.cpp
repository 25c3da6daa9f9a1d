// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/clock_check.h"

#include <sys/timex.h>

namespace ddp::check {

ClockFacts read_clock() noexcept {
  timex query{};  // modes = 0: read only
  const int state = adjtimex(&query);
  if (state < 0) return {};
  return {true, state != TIME_ERROR && (query.status & STA_UNSYNC) == 0, query.maxerror};
}

Finding evaluate_clock(const ClockFacts& facts) {
  constexpr std::int64_t kMaxMicroseconds = 1'000'000;
  Finding finding{.check = "clock.synchronized",
                  .severity = Severity::ok,
                  .unit = "ms possible error",
                  .expected = "synchronized to less than 1 s",
                  .rule = "the kernel reports a synchronized clock"};
  if (!facts.readable) {
    finding.severity = Severity::unknown;
    finding.evidence = "adjtimex is not permitted";
    finding.action = "run the check outside the container";
    return finding;
  }
  finding.value = static_cast<double>(facts.max_error_microseconds) / 1000.0;
  if (facts.synchronized && facts.max_error_microseconds < kMaxMicroseconds) return finding;
  finding.severity = Severity::warning;
  finding.evidence = facts.synchronized ? "" : "no time service synchronizes this clock";
  finding.action = "start chrony or another time service";
  return finding;
}

}  // namespace ddp::check
