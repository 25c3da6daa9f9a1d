// SPDX-License-Identifier: Apache-2.0
// Exit of ddp-check, without waiting for hanging threads.
#pragma once

namespace ddp::tools {

inline constexpr int kUsage =
    3;  // the exit code that monitoring systems expect from a check that could not run

// Exits immediately if threads were left behind, because they still hang in the kernel or in MPI
// and would delay the exit. Otherwise returns the exit code.
int end_with(int exit_code, bool left_behind);

}  // namespace ddp::tools
