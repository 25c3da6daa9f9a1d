// SPDX-License-Identifier: Apache-2.0
// Measures NCCL between the first GPUs of two nodes; each end runs in a separate process.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_calls.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

struct NcclTool {
  std::string program = "/proc/self/exe";  // program with the command nccl-end
  std::string nccl_library = nccl::kLibrary;
  std::string cuda_library = cuda::kDriverLibrary;
  int gpus = 0;         // GPUs that this task may use
  std::string version;  // NCCL version; empty if NCCL cannot be used
  std::string problem;  // reason why the GPUs or NCCL cannot be used
};

// Starts a process that reports the GPUs and the NCCL version of this node. If the kernel has no
// GPU driver and `cuda_library` is the default, reports no GPUs without starting a process.
NcclTool find_nccl(NcclTool tool, std::chrono::milliseconds limit);

// The environment variable that passes the token of an exchange to the process, because other users
// can read command lines.
inline constexpr const char* kPairTokenVariable = "SLURM_DDP_PAIR_TOKEN";

// The command lines of the processes, and the line with the result that they print.
std::vector<std::string> nccl_survey_command(const NcclTool& tool);
std::vector<std::string> nccl_end_command(const NcclTool& tool, const ExchangeCommand& command,
                                          const Faults& faults);
std::string nccl_result_line(const nlohmann::json& result);

// The value of the last result line. Returns nullopt if there is none, or if it is not a JSON
// object.
std::optional<nlohmann::json> parse_nccl_result(std::string_view output);

// "NET/IB/0/GDRDMA" from NCCL's own log; empty if the log does not contain it.
std::string nccl_transport(std::string_view output);

// Measures both directions, starting with the data of the first end. Throws NetError if the
// measurement fails or the deadline passes, in which case the process is killed.
ExchangeResult exchange_by_nccl(const NcclTool& tool, const ExchangeCommand& command,
                                const Faults& faults, Deadline deadline);

// The work of the process that nccl_survey_command() starts.
nlohmann::json survey_nccl(const std::string& nccl_library, const std::string& cuda_library);

}  // namespace ddp::check
