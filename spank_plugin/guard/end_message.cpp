// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/end_message.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/text.h"

namespace ddp::guard {
namespace {

using std::chrono::milliseconds;

constexpr int kUnexplained = 1 << 8;
constexpr std::uint64_t kMaxMilliseconds = 1U << 30U;

}  // namespace

Message to_message(const StepEnd& end) {
  const auto left = std::chrono::ceil<milliseconds>(end.at - Clock::now());
  return {MessageKind::failure, end.code | (end.is_explained ? 0 : kUnexplained),
          std::to_string(std::max(left, milliseconds(0)).count())};
}

std::optional<StepEnd> parse_end(const Message& message) {
  const auto left = parse_decimal(message.text, kMaxMilliseconds);
  if (message.kind != MessageKind::failure || message.rank < 0 || !left) return std::nullopt;
  return StepEnd{Clock::now() + milliseconds(*left), message.rank & 0xFF,
                 (message.rank & kUnexplained) == 0};
}

}  // namespace ddp::guard
