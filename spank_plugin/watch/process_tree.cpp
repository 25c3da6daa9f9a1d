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
constexpr std::size_t kMaxThreads = 8192;  // of all
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
std::optional<std::uint64_t> io_of(std::string_view text) {
  if (text.empty()) return std::nullopt;
  constexpr std::size_t kMaxLines = 8;
  std::uint64_t bytes = 0;
  for (const auto line : split(text, '\n', kMaxLines)) {
    const auto colon = line.find(':');
    const auto key = line.substr(0, colon);
    if (key != "rchar" && key != "wchar" && key != "read_bytes") continue;
    bytes += number_of(trimmed(line.substr(colon + 1)));
  }
  return bytes;
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
  return process;
}

std::vector<pid_t> read_children(const std::string& process, std::size_t& threads) {
  std::vector<pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator thread(process + "/task", error);
  for (; threads > 0 && thread != end(thread); --threads, thread.increment(error)) {
    std::string list = read_kernel_file(thread->path().string() + "/children");
    list.resize(list.rfind(' ') + 1);  // a last number that was cut off is another process's
    for (const auto word : words_of(list, kMaxProcesses)) {
      if (const auto child = parse_decimal(word)) children.push_back(static_cast<pid_t>(*child));
    }
  }
  return children;
}

std::vector<Process> read_processes(const std::string& proc, pid_t parent, pid_t task) {
  const auto directory = [&proc](pid_t pid) { return proc + "/" + std::to_string(pid); };
  std::size_t threads = kMaxThreads;
  std::vector<pid_t> found{task};
  std::set<pid_t> known{parent, task};
  const auto add_children = [&](pid_t pid) {
    const auto children = read_children(directory(pid), threads);
    for (const pid_t child : children) {
      if (found.size() < kMaxProcesses && known.insert(child).second) found.push_back(child);
    }
    return !children.empty();
  };
  // The task is one, if the kernel lists them.
  if (!add_children(parent)) return {};
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i]);

  std::vector<Process> processes;
  for (const pid_t pid : found) {
    auto process = parse_stat(read_kernel_file(directory(pid) + "/stat"));
    if (!process) continue;
    // Before Linux 5.7 the file waits for an execve(2), which may hang as well.
    if (process->state != 'D') process->io = io_of(read_kernel_file(directory(pid) + "/io"));
    processes.push_back(*process);
  }
  return processes;
}

std::vector<Process> tree_of(std::span<const Process> processes, pid_t root) {
  std::vector<Process> tree;
  std::set<pid_t> members{root};
  for (const auto& process : processes) {  // parents come before their children
    if (process.pid != root && !members.contains(process.parent)) continue;
    members.insert(process.pid);
    tree.push_back(process);
  }
  return tree;
}

}  // namespace ddp::watch
