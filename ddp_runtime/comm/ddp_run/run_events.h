// SPDX-License-Identifier: Apache-2.0
// Tells ddp-run, which has started this process, what the program does: lines of JSON on a
// descriptor that its agent reads. Without ddp-run, these functions do nothing.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp::comm {

// Environment variable: the number of the descriptor.
inline constexpr const char* kRunEventsVariable = "DDP_RUN_EVENTS";

// Sums since training began in this process.
struct RunProgress {
  std::int64_t step = 0;     // that has ended on all ranks
  double step_seconds = 0;   // of the steps, without the next
  double stall_seconds = 0;  // for which checkpoints kept training waiting
  std::int64_t saves = 0;    // checkpoints that did
};

// The program begins to load a checkpoint.
void tell_restoring() noexcept;
// It has the state after this step, and begins with the next one.
void tell_training(std::int64_t step) noexcept;
// At most ten a second are told, unless it is to be told in any case.
void tell_progress(const RunProgress& progress, bool in_any_case = false) noexcept;
// A restarted program resumes from the state after this step, or a later one.
void tell_kept_on_disk(std::int64_t step) noexcept;
// The next start on these nodes resumes from the state after this step, which is in their memory.
// `divided`: each has a part; otherwise each has all of it.
void tell_kept_in_memory(std::int64_t step, bool divided) noexcept;
// The program ends with an error, which is this rank's.
void tell_failure(int rank, std::string_view text, bool is_usage_error) noexcept;

}  // namespace ddp::comm
