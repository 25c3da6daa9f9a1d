// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/process_tree.h"

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::watch {
namespace {

constexpr std::size_t kMaxProcesses = 4096;
constexpr std::size_t kMaxThreads = 4096;  // of one process
constexpr auto kMaxTicks = std::numeric_limits<std::uint64_t>::max() >> 16U;

// What follows the name in /proc/PID/stat, counted from 0: field 3 of proc(5) is number 0.
enum Field : std::size_t {
  kState = 0,
  kParent = 1,
  kUserTime = 11,
  kReapedSystemTime = 14,  // the last of four
  kThreads = 17,
  kStart = 19,
  kFields = 20,
};

std::uint64_t number_of(std::string_view word) noexcept {
  return parse_decimal(word, kMaxTicks).value_or(0);
}

bool has_ended(const std::vector<std::string_view>& fields) noexcept {
  const bool is_zombie = fields[kState] == "Z" || fields[kState] == "X";
  return is_zombie && number_of(fields[kThreads]) <= 1;
}

std::chrono::milliseconds cpu_of(const std::vector<std::string_view>& fields) noexcept {
  std::uint64_t ticks = 0;
  for (std::size_t i = kUserTime; i <= kReapedSystemTime; ++i) ticks += number_of(fields[i]);
  const auto per_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return std::chrono::milliseconds(ticks * 1000 / per_second);
}

// Of /proc/PID/io. What goes through sockets is not in it.
std::uint64_t io_of(std::string_view text) {
  constexpr std::size_t kMaxLines = 8;
  std::uint64_t bytes = 0;
  for (const auto line : split(text, '\n', kMaxLines)) {
    if (!line.starts_with("rchar:") && !line.starts_with("wchar:")) continue;
    bytes += number_of(trimmed(line.substr(6)));
  }
  return bytes;
}

// Each thread has children of its own.
std::vector<pid_t> children_of(const std::string& process) {
  std::vector<pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator thread(process + "/task", error);
  for (std::size_t i = 0; i < kMaxThreads && thread != end(thread); ++i) {
    std::string list = read_kernel_file(thread->path().string() + "/children");
    list.resize(list.rfind(' ') + 1);  // a last number that was cut off is another process's
    for (const auto word : words_of(list, kMaxProcesses)) {
      if (const auto child = parse_decimal(word)) children.push_back(static_cast<pid_t>(*child));
    }
    thread.increment(error);
  }
  return children;
}

}  // namespace

std::optional<Process> parse_stat(std::string_view text) {
  // "PID (NAME) STATE ...": the name can contain anything, so its last parenthesis counts.
  const auto open = text.find(" (");
  const auto close = text.rfind(") ");
  if (open == text.npos || close == text.npos || close < open + 2) return std::nullopt;
  const auto pid = parse_decimal(text.substr(0, open));
  const auto fields = words_of(text.substr(close + 2), kFields);
  if (!pid || fields.size() < kFields || fields[kState].size() != 1) return std::nullopt;
  if (has_ended(fields)) return std::nullopt;
  Process process;
  process.pid = static_cast<pid_t>(*pid);
  process.parent = static_cast<pid_t>(number_of(fields[kParent]));
  process.start = number_of(fields[kStart]);
  process.state = fields[kState].front();
  process.cpu = cpu_of(fields);
  process.name = text.substr(open + 2, close - open - 2);
  return process;
}

std::vector<Process> read_processes(const std::string& proc, pid_t parent, pid_t task) {
  const auto directory = [&proc](pid_t pid) { return proc + "/" + std::to_string(pid); };
  std::vector<pid_t> found{task};
  std::set<pid_t> known{parent, task};
  const auto add_children = [&](pid_t pid) {
    for (const pid_t child : children_of(directory(pid))) {
      if (found.size() < kMaxProcesses && known.insert(child).second) found.push_back(child);
    }
  };
  add_children(parent);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i]);

  std::vector<Process> processes;
  for (const pid_t pid : found) {
    auto process = parse_stat(read_kernel_file(directory(pid) + "/stat"));
    if (!process) continue;
    process->io = io_of(read_kernel_file(directory(pid) + "/io"));
    processes.push_back(*std::move(process));
  }
  return processes;
}

}  // namespace ddp::watch
