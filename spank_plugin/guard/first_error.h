// SPDX-License-Identifier: Apache-2.0
// The first error in the end of a rank's stderr. The text is untrusted: it may start in the middle
// of a line, mix several processes, and contain progress bars, colors and binary data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::guard {

// What a rank's own output says about its end. Among causes of equal evidence, the one that is
// listed first wins.
enum class Cause {
  none,
  host_memory,
  gpu_fault,
  gpu_memory,
  own_error,
  crash,
  device_error,     // reported by the GPU, possibly long after the call that caused it
  library_timeout,  // the rank that reports it waited for another one
  cascade,          // a consequence of an error elsewhere
};

struct FirstError {
  Cause cause = Cause::none;
  std::string text;   // one line, printable, at most 200 characters: "ValueError: bad sample 17"
  std::string place;  // "train.py:88", preferably the user's own code; empty if unknown
  std::optional<std::uint32_t> rank;  // of the worker that failed first, if torch names it
};

// Which of several errors counts, if a program may have handled some of them.
enum class ErrorOrder {
  first,  // texts of several processes: the others follow from the first
  last,   // the text of one process: it ended with the last
};

// Takes time linear in the size of the tail.
FirstError find_first_error(std::string_view tail, ErrorOrder order = ErrorOrder::first);

// Whether this is what a program prints because it is told to end.
bool is_answer_to_a_signal(const FirstError& error) noexcept;

}  // namespace ddp::guard
