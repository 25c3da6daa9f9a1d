// SPDX-License-Identifier: Apache-2.0
// `ddp-run simulate`: predicts how much of its time a job makes progress although nodes fail.
#pragma once

namespace ddp::tools {

// `argv[0]` is the name of the command. Returns the exit code. Throws UsageError.
int run_simulate_command(int argc, char** argv);

}  // namespace ddp::tools
