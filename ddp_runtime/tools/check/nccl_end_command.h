// SPDX-License-Identifier: Apache-2.0
// `ddp-check nccl-end`: one end of a measurement. `ddp-check net` starts it on both nodes, and
// --help does not list it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "ddp_runtime/check/net/measure/nccl/nccl_end.h"

namespace ddp::tools {

struct NcclEndArguments {
  check::NcclEnd end;
  std::int64_t limit_ms = 10'000;
  bool survey = false;
};

// Adds the command; its options are stored in `arguments`.
void add_nccl_end(CLI::App& app, NcclEndArguments& arguments);

// Runs the measurement, or reports the available GPUs and NCCL version. `ddp-check net` parses the
// output. NCCL's log in this output shows the network used.
int run_nccl_end(const NcclEndArguments& arguments);

}  // namespace ddp::tools
