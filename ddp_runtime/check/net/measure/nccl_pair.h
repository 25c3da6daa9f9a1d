// NCCL between the first GPUs of two nodes, each end measured by a process of its own.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/nccl_calls.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

struct NcclTool {
  std::string program = "/proc/self/exe";  // that has the command nccl-end
  std::string nccl_library = kNcclLibrary;
  std::string cuda_library = kCudaLibrary;
  int gpus = 0;         // that this task may use
  std::string version;  // of NCCL; empty if it cannot be used
  std::string problem;  // why the GPUs or NCCL cannot be used
};

// What NCCL has to work with here, asked in a process of its own. Where the kernel has no driver
// for GPUs, and `cuda_library` is the usual one, nothing is asked and there are none.
NcclTool find_nccl(NcclTool tool, std::chrono::milliseconds limit);

// The variable by which the token of an exchange reaches the process: other users can read command
// lines.
inline constexpr const char* kPairTokenVariable = "SLURM_DDP_PAIR_TOKEN";

// The commands of the processes, and what they print on standard output.
std::vector<std::string> nccl_survey_command(const NcclTool& tool);
std::vector<std::string> nccl_end_command(const NcclTool& tool, const ExchangeCommand& command,
                                          const Faults& faults);
std::string nccl_result_line(const nlohmann::json& result);

// The value of the last such line; nothing if there is none, or it is no JSON object.
std::optional<nlohmann::json> parse_nccl_result(std::string_view output);

// "NET/IB/0/GDRDMA" from NCCL's own log; empty if it does not tell.
std::string nccl_transport(std::string_view output);

// Both directions, the first end's first. Throws NetError if it fails or the deadline passes; the
// process is killed then.
ExchangeResult exchange_by_nccl(const NcclTool& tool, const ExchangeCommand& command,
                                const Faults& faults, Deadline deadline);

// What the process does that nccl_survey_command() starts.
nlohmann::json survey_nccl(const std::string& nccl_library, const std::string& cuda_library);

}  // namespace ddp::check
