// How ddp-check ends: with which code, and not held up by what hangs.
#pragma once

namespace ddp::tools {

inline constexpr int kUsage = 3;  // what monitoring systems expect of a check that could not run

// Ends the process at once if threads were left behind, which still hang in the kernel or in MPI
// and must not keep it. Otherwise gives the exit code back.
int end_with(int exit_code, bool left_behind);

}  // namespace ddp::tools
