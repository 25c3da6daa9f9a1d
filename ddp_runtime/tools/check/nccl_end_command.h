// `ddp-check nccl-end`: one end of a measurement, as `net` starts it on both nodes; not in the help
// for people.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "ddp_runtime/check/net/measure/nccl_end.h"

namespace ddp::tools {

struct NcclEndArguments {
  check::NcclEnd end;
  std::int64_t limit_ms = 10'000;
  bool survey = false;
};

// Adds the command; what its options say goes to `arguments`.
void add_nccl_end(CLI::App& app, NcclEndArguments& arguments);

// Measures, or tells what there is. What it prints is read by the check; NCCL's log tells which
// network it took.
int run_nccl_end(const NcclEndArguments& arguments);

}  // namespace ddp::tools
