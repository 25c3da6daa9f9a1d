// SPDX-License-Identifier: Apache-2.0
// Checks that the node's clock is synchronized. Wrong clocks make the logs and traces of different
// nodes incomparable and break Kerberos and MUNGE.
#pragma once

#include <cstdint>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

struct ClockFacts {
  bool readable = false;
  bool synchronized = false;  // as the kernel reports it
  std::int64_t max_error_microseconds = 0;
};

ClockFacts read_clock() noexcept;

Finding evaluate_clock(const ClockFacts& facts);

}  // namespace ddp::check
