// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/write_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <thread>

#include "base/subprocess.h"
#include "base/text.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMessage = std::size_t{1} << 20;
constexpr std::size_t kMaxWords = 200;
constexpr int kToolNotFound = 127;
constexpr const char* kTitle = "RDMA_Write BW Test";  // printed when the two ends are connected
constexpr auto npos = std::string::npos;
constexpr std::chrono::milliseconds kBetweenCalls{100};
// The port of the tool's handshake is this port plus an offset from the unique number of the
// exchange.
constexpr std::uint16_t kFirstPort = 18515;
constexpr std::uint16_t kPorts = 4096;

bool is_complaint(const std::string& line) {
  constexpr std::array kWords{"rror", "ailed", "nable to", "ouldn't"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&line](const char* word) { return line.find(word) != npos; });
}

// The tool's complaints, else its last line. The complaints come before the rest of the output,
// which the tool prints through a buffer.
std::string words_of(const std::string& text) {
  std::istringstream lines(text);
  std::string last = "it printed nothing";
  std::string complaints;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" -\t\r");
    if (first == npos) continue;
    last = line.substr(first);
    if (is_complaint(last)) complaints += (complaints.empty() ? "" : "; ") + last;
  }
  return sanitize_first_line(complaints.empty() ? last : complaints, kMaxWords);
}

// One run of the tool, over one port of this node.
struct Run {
  const std::string& program;
  const OwnRdmaPort& over;
  std::vector<std::string> command;
};

// `earlier`: the output of the previous attempt, in case this attempt was killed before it printed
// anything.
NetError failure(const Run& run, const SubprocessOutput& output, const std::string& earlier = {}) {
  if (output.exit_code == kToolNotFound) return NetError(run.program + " cannot be started");
  return NetError(
      fmt::format("{} on {} {}: {}", run.program, run.over.port.name,
                  output.timed_out ? "did not finish in time" : "failed",
                  output.text.empty() && !earlier.empty() ? earlier : words_of(output.text)));
}

// Retries, because the other end may not be listening yet. A test that failed after the two ends
// had found each other is not repeated: the other end has then exited, too.
double write_to_peer(const Run& run, Deadline deadline) {
  for (std::string earlier;; std::this_thread::sleep_for(kBetweenCalls)) {
    const SubprocessOutput output = Subprocess::running(run.command).wait(deadline);
    if (output.exit_code == 0) {
      if (const auto speed = parse_write_bandwidth(output.text)) return *speed;
      throw NetError(run.program + " printed no bandwidth: " + words_of(output.text));
    }
    const bool last = Clock::now() + kBetweenCalls >= deadline;
    const bool final = output.exit_code == kToolNotFound || output.text.find(kTitle) != npos;
    if (last || final) {
      throw failure(run, output, earlier);
    }
    earlier = words_of(output.text);
  }
}

void be_written_to(const Run& run, Deadline deadline) {
  const SubprocessOutput output = Subprocess::running(run.command).wait(deadline);
  if (output.exit_code != 0) throw failure(run, output);
}

const OwnRdmaPort& port_named(const RdmaTool& tool, const std::string& name) {
  const auto found = std::find_if(tool.ports.begin(), tool.ports.end(),
                                  [&name](const auto& own) { return own.port.name == name; });
  if (found == tool.ports.end()) {
    throw NetError("the leader requested the RDMA port '" + name + "', which this node lacks");
  }
  return *found;
}

}  // namespace

std::vector<std::string> write_bandwidth_command(const std::string& program,
                                                 const OwnRdmaPort& over, std::uint16_t port,
                                                 std::size_t bytes, const std::string& host) {
  const std::string& name = over.port.name;
  const auto colon = name.rfind(':');
  std::vector<std::string> command{program, "-d", name.substr(0, colon), "-F", "--report_gbits"};
  const auto add = [&command](const char* option, const std::string& value) {
    command.emplace_back(option);
    command.push_back(value);
  };
  if (colon != std::string::npos) add("-i", name.substr(colon + 1));
  if (over.gid_index) add("-x", std::to_string(*over.gid_index));
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
  const OwnRdmaPort& over = port_named(tool, command.rail);
  ExchangeResult result;
  result.via = over.port.name;
  const auto run = [&](std::uint16_t at, const std::string& host) {
    return Run{tool.program, over,
               write_bandwidth_command(tool.program, over, at, command.bytes, host)};
  };
  const auto write = [&](std::uint16_t to) {
    result.sent_per_second = write_to_peer(run(to, command.host), deadline);
  };
  const auto receive = [&](std::uint16_t on) { be_written_to(run(on, ""), deadline); };
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
