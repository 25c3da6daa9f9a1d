// SPDX-License-Identifier: Apache-2.0
// How ddp-check exits: with which code, and without waiting for hanging threads.
#pragma once

namespace ddp::tools {

inline constexpr int kUsage =
    3;  // the exit code that monitoring systems expect from a check that could not run

// Exits at once if threads were left behind, which still hang in the kernel or in MPI and must not
// delay the exit. Otherwise returns the exit code.
int end_with(int exit_code, bool left_behind);

}  // namespace ddp::tools
