// Whether something keeps the node's clock right. Wrong clocks make logs and traces of different
// nodes incomparable and break Kerberos and munge.
#pragma once

#include <cstdint>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

struct ClockFacts {
  bool readable = false;
  bool synchronized = false;  // the kernel's own opinion
  std::int64_t max_error_microseconds = 0;
};

ClockFacts read_clock() noexcept;

Finding evaluate_clock(const ClockFacts& facts);

}  // namespace ddp::check
