// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/write_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <thread>

#include "base/subprocess.h"
#include "base/text.h"
#include "spank_plugin/fabric/infiniband_port.h"
#include "spank_plugin/fabric/roce_gid.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMessage = std::size_t{1} << 20;
constexpr std::size_t kMaxWords = 200;
constexpr int kToolNotFound = 127;
constexpr std::chrono::milliseconds kBetweenCalls{100};
// The port of the tool's handshake is this port plus an offset from the unique number of the
// exchange.
constexpr std::uint16_t kFirstPort = 18515;
constexpr std::uint16_t kPorts = 4096;

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last = "it printed nothing";
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" -\t\r") != std::string::npos) last = line;
  }
  return sanitize_first_line(last, kMaxWords);
}

// `earlier`: the output of the previous attempt, in case this attempt was killed before it printed
// anything.
NetError failure(const RdmaTool& tool, const SubprocessOutput& output,
                 const std::string& earlier = {}) {
  if (output.exit_code == kToolNotFound) return NetError(tool.program + " cannot be started");
  return NetError(
      fmt::format("{} on {} {}: {}", tool.program, tool.port,
                  output.timed_out ? "did not finish in time" : "failed",
                  output.text.empty() && !earlier.empty() ? earlier : last_line(output.text)));
}

// Retries, because the other end may not be listening yet.
double write_to_peer(const RdmaTool& tool, const std::vector<std::string>& command,
                     Deadline deadline) {
  for (std::string earlier;; std::this_thread::sleep_for(kBetweenCalls)) {
    const SubprocessOutput output = Subprocess::running(command).wait(deadline);
    if (output.exit_code == 0) {
      if (const auto speed = parse_write_bandwidth(output.text)) return *speed;
      throw NetError(tool.program + " printed no bandwidth: " + last_line(output.text));
    }
    if (Clock::now() + kBetweenCalls >= deadline || output.exit_code == kToolNotFound) {
      throw failure(tool, output, earlier);
    }
    earlier = last_line(output.text);
  }
}

void be_written_to(const RdmaTool& tool, const std::vector<std::string>& command,
                   Deadline deadline) {
  const SubprocessOutput output = Subprocess::running(command).wait(deadline);
  if (output.exit_code != 0) throw failure(tool, output);
}

}  // namespace

bool RdmaTool::runnable() const {
  return !port.empty() && can_be_executed(program);
}

RdmaTool find_rdma(const std::filesystem::path& sys, const std::string& program,
                   const std::string& wanted) {
  RdmaTool tool{program, wanted, {}};
  for (const auto& port : fabric::read_infiniband_ports(sys)) {
    const bool is_it = wanted.empty() ? port.active() : fabric::name_of(port) == wanted;
    if (!is_it) continue;
    tool.port = fabric::name_of(port);
    if (port.link_layer != "Ethernet") return tool;
    if (const auto gid = fabric::choose_roce_gid(port, "")) tool.gid_index = gid->index;
    return tool;
  }
  return tool;
}

std::vector<std::string> write_bandwidth_command(const RdmaTool& tool, std::uint16_t port,
                                                 std::size_t bytes, const std::string& host) {
  const auto colon = tool.port.rfind(':');
  std::vector<std::string> command{tool.program, "-d", tool.port.substr(0, colon), "-F",
                                   "--report_gbits"};
  const auto add = [&command](const char* option, const std::string& value) {
    command.emplace_back(option);
    command.push_back(value);
  };
  if (colon != std::string::npos) add("-i", tool.port.substr(colon + 1));
  if (tool.gid_index) add("-x", std::to_string(*tool.gid_index));
  add("-p", std::to_string(port));
  add("-s", std::to_string(kMessage));
  add("-n", std::to_string(std::max<std::size_t>(100, 8 * bytes / kMessage)));
  if (!host.empty()) command.push_back(host);
  return command;
}

std::optional<double> parse_write_bandwidth(std::string_view output) {
  constexpr double kGigabit = 1e9 / 8;
  constexpr double kMebibyte = 1048576;  // the tool's "MB"
  std::istringstream lines{std::string(output)};
  double unit = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("#bytes") != std::string::npos) {
      unit = line.find("average[Gb/sec]") != std::string::npos   ? kGigabit
             : line.find("average[MB/sec]") != std::string::npos ? kMebibyte
                                                                 : 0;
      continue;
    }
    double bytes = 0;
    double iterations = 0;
    double peak = 0;
    double average = 0;
    if (unit == 0 || !(std::istringstream(line) >> bytes >> iterations >> peak >> average))
      continue;
    if (std::isfinite(average) && average > 0) return average * unit;
    return std::nullopt;
  }
  return std::nullopt;
}

ExchangeResult exchange_by_rdma(const RdmaTool& tool, const ExchangeCommand& command,
                                Deadline deadline) {
  const auto port = static_cast<std::uint16_t>(kFirstPort + 2 * (command.exchange % (kPorts / 2)));
  const auto back = static_cast<std::uint16_t>(port + 1);
  ExchangeResult result;
  result.via = tool.port;
  const auto write = [&](std::uint16_t to) {
    result.sent_per_second = write_to_peer(
        tool, write_bandwidth_command(tool, to, command.bytes, command.host), deadline);
  };
  const auto receive = [&](std::uint16_t on) {
    be_written_to(tool, write_bandwidth_command(tool, on, command.bytes, ""), deadline);
  };
  if (command.first) {
    write(port);
    receive(back);
  } else {
    receive(port);
    write(back);
  }
  return result;
}

}  // namespace ddp::check
