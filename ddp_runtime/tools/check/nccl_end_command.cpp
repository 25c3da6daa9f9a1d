// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/nccl_end_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>

#include "base/deadline.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_pair.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/tools/check/ending.h"

namespace ddp::tools {

void add_nccl_end(CLI::App& app, NcclEndArguments& arguments) {
  CLI::App& command =
      *app.add_subcommand("nccl-end", "Run one end of a measurement between two GPUs");
  command.group("");
  check::NcclEnd& end = arguments.end;
  command.add_option("--nccl", end.nccl_library);
  command.add_option("--cuda", end.cuda_library);
  command.add_option("--host", end.host, "The other end; without it, wait for a connection");
  command.add_option("--port", end.port);
  command.add_option("--exchange", end.exchange, "Number of the exchange, the same at both ends");
  command.add_option("--bytes", end.bytes)->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32));
  command.add_option("--limit-ms", arguments.limit_ms)->check(CLI::Range(1, 86'400'000));
  command.add_option("--slow", end.faults.speed)->check(CLI::Range(0.0, 1.0));
  command.add_flag("--corrupt", end.faults.corrupt);
  command.add_flag("--survey", arguments.survey, "Only report the available GPUs and NCCL");
}

int run_nccl_end(const NcclEndArguments& arguments) {
  setenv("NCCL_DEBUG", "INFO", 1);
  for (const char* elsewhere : {"NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"}) unsetenv(elsewhere);
  check::NcclEnd end = arguments.end;
  if (const char* token = std::getenv(check::kPairTokenVariable)) end.token = token;
  try {
    const auto result =
        arguments.survey ? check::survey_nccl(end.nccl_library, end.cuda_library)
                         : check::to_message(check::measure_by_nccl(
                               end, Clock::now() + std::chrono::milliseconds(arguments.limit_ms)));
    fmt::print("{}", check::nccl_result_line(result));
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return kUsage;
  }
  return 0;
}

}  // namespace ddp::tools
