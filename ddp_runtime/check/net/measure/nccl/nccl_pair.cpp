// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/nccl/nccl_pair.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/json/bounded_json.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace ddp::check {
namespace {

using nlohmann::json;

constexpr std::string_view kResult = "nccl-end result: ";
constexpr const char* kDriver = "/dev/nvidiactl";
// The listening end's port is this port plus an offset from the unique number of the exchange.
constexpr std::uint16_t kFirstNcclPort = 22'700;
constexpr std::uint16_t kNcclPorts = 4096;
constexpr std::size_t kMaxNcclWords = 200;

std::vector<std::string_view> lines_of_log(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The reason of a failure. NCCL's own warning is preferred, because the final error is less
// specific.
std::string last_nccl_words(const std::string& output) {
  constexpr std::string_view kWarning = "NCCL WARN ";
  std::string warning;
  std::string last;
  for (const auto line : lines_of_log(output)) {
    const auto at = line.find(kWarning);
    if (at != line.npos)
      warning = sanitize_first_line(line.substr(at + kWarning.size()), kMaxNcclWords);
    const bool log = line.find("NCCL INFO") != line.npos || line.find("NCCL version") != line.npos;
    if (!log && at == line.npos && !line.empty()) last = sanitize_first_line(line, kMaxNcclWords);
  }
  if (last.empty()) return warning.empty() ? "it printed nothing" : warning;
  return warning.empty() ? last : fmt::format("{} ({})", last, warning);
}

std::string nccl_failure(const SubprocessOutput& output) {
  return fmt::format("{}: {}", output.timed_out ? "NCCL did not finish in time" : "NCCL failed",
                     last_nccl_words(output.text));
}

}  // namespace

std::string nccl_result_line(const json& result) {
  return fmt::format("\n{}{}\n", kResult, result.dump(-1, ' ', true));
}

std::optional<json> parse_nccl_result(std::string_view output) {
  const auto at = output.rfind(kResult);
  if (at == output.npos) return std::nullopt;
  const auto text = output.substr(at + kResult.size());
  const json value = parse_bounded_json_or_null(text.substr(0, text.find('\n')));
  if (!value.is_object()) return std::nullopt;
  // In newer standard libraries, a conversion of json to optional<json> is ambiguous.
  return std::make_optional(value);
}

std::string nccl_transport(std::string_view output) {
  constexpr std::string_view kVia = " via ";
  for (const auto line : lines_of_log(output)) {
    const auto at = line.find(kVia);
    if (at == line.npos || line.find("NCCL INFO Channel ") == line.npos) continue;
    const auto words = line.substr(at + kVia.size());
    return sanitize_first_line(words.substr(0, words.find(' ')), kMaxNcclWords);
  }
  return {};
}

json survey_nccl(const std::string& nccl_library, const std::string& cuda_library) {
  json found{{"gpus", 0}, {"version", ""}, {"problem", ""}};
  try {
    found["gpus"] = CudaGpu::count(cuda_library);
    found["version"] = NcclPair::version(nccl_library);
  } catch (const RuntimeError& error) {
    found["problem"] = error.what();
  }
  return found;
}

NcclTool find_nccl(NcclTool tool, std::chrono::milliseconds limit) {
  if (tool.cuda_library == cuda::kDriverLibrary && access(kDriver, F_OK) != 0) return tool;
  const SubprocessOutput output =
      Subprocess::running(nccl_survey_command(tool)).wait(Clock::now() + limit);
  const auto found = parse_nccl_result(output.text);
  if (output.exit_code != 0 || !found) {
    tool.problem = nccl_failure(output);
    return tool;
  }
  tool.gpus = found->value("gpus", 0);
  tool.version = sanitize_first_line(found->value("version", ""), kMaxNcclWords);
  tool.problem = sanitize_first_line(found->value("problem", ""), kMaxNcclWords);
  return tool;
}

std::vector<std::string> nccl_survey_command(const NcclTool& tool) {
  return {tool.program, "nccl-end",        "--nccl",  tool.nccl_library,
          "--cuda",     tool.cuda_library, "--survey"};
}

std::vector<std::string> nccl_end_command(const NcclTool& tool, const ExchangeCommand& command,
                                          const Faults& faults) {
  std::vector<std::string> arguments{tool.program, "nccl-end"};
  const auto add = [&arguments](const char* option, const std::string& value) {
    arguments.emplace_back(option);
    arguments.push_back(value);
  };
  add("--nccl", tool.nccl_library);
  add("--cuda", tool.cuda_library);
  add("--port", std::to_string(kFirstNcclPort + command.exchange % kNcclPorts));
  add("--exchange", std::to_string(command.exchange));
  add("--bytes", std::to_string(command.bytes));
  add("--limit-ms", std::to_string(command.limit_ms));
  if (command.first) add("--host", command.host);
  if (faults.speed < 1.0) add("--slow", fmt::format("{}", faults.speed));
  if (faults.corrupt) arguments.emplace_back("--corrupt");
  return arguments;
}

ExchangeResult exchange_by_nccl(const NcclTool& tool, const ExchangeCommand& command,
                                const Faults& faults, Deadline deadline) {
  const SubprocessOutput output =
      Subprocess::running(nccl_end_command(tool, command, faults),
                          {.variables = {{kPairTokenVariable, command.token}}})
          .wait(deadline);
  const auto message = parse_nccl_result(output.text);
  if (output.exit_code != 0 || !message) throw NetError(nccl_failure(output));
  ExchangeResult result;
  try {
    result = exchange_result_from(*message);
  } catch (const json::exception&) {
    throw NetError("the NCCL measurement did not print a result");
  }
  result.via = nccl_transport(output.text);
  return result;
}

}  // namespace ddp::check
