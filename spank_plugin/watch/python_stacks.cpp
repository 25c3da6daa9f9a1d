// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/python_stacks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/text_file.h"
#include "spank_plugin/watch/stack_place.h"

namespace ddp::watch {
namespace {

// A file of the process: its number, and where it leads to.
struct OpenFile {
  std::string_view number;
  std::string_view path;
};

// The signal in ".../slurm-ddp-stacks-f3b1-61-3 (deleted)", if the process has it open as file 3;
// 0 for another file. A program may have given it another number, and a file of its own this one.
int signal_in(const OpenFile& file) {
  constexpr std::string_view kStart = "slurm-ddp-stacks-";
  const auto name = file.path.substr(file.path.rfind('/') + 1);
  const auto parts = split(name.substr(0, name.find(' ')), '-');
  if (!name.starts_with(kStart) || parts.size() != 6 || parts[5] != file.number) return 0;
  const auto signal = parse_decimal(parts[4], NSIG - 1);
  return signal ? static_cast<int>(*signal) : 0;
}

// The value of a line such as "SigCgt:\t0000000180000000" in /proc/PID/status.
std::string_view value_of(std::string_view status, std::string_view key) {
  for (const auto line : split(status, '\n')) {
    if (line.starts_with(key)) return trimmed(line.substr(key.size()));
  }
  return "";
}

bool has_signal(std::string_view mask, int signal) {
  constexpr std::size_t kDigits = 16;
  // Four bits to a digit, the last digit first.
  const auto bit = static_cast<std::size_t>(signal) - 1;
  if (mask.size() != kDigits || bit / 4 >= kDigits) return false;
  const auto digit = parse_hexadecimal(mask.substr(kDigits - 1 - bit / 4, 1));
  return digit && ((*digit >> (bit % 4)) & 1U) != 0;
}

// Calls that return for any signal, as their caller wants, or with an error that few expect. Others
// are continued by the kernel or, as poll(2), by Python.
bool ends_by_signal(std::string_view system_call) {
  constexpr auto kCalls = std::to_array<long>({
#ifdef SYS_pause
      SYS_pause,
#endif
      SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_semop, SYS_semtimedop, SYS_msgrcv, SYS_msgsnd,
      SYS_io_getevents});
  const auto number = parse_decimal(system_call.substr(0, system_call.find(' ')));
  return !number || std::ranges::find(kCalls, static_cast<long>(*number)) != kCalls.end();
}

// `process` is the directory of the process, whose main thread is the one of its number.
bool may_get(const std::string& process, int signal) {
  const std::string thread = process + "/task" + process.substr(process.rfind('/'));
  const std::string status = read_kernel_file(thread + "/status");
  return value_of(status, "State:").starts_with('S') && value_of(status, "TracerPid:") == "0" &&
         has_signal(value_of(status, "SigCgt:"), signal) &&
         !has_signal(value_of(status, "SigBlk:"), signal) &&
         !ends_by_signal(read_kernel_file(thread + "/syscall"));
}

off_t size_of(const StackFile& stacks) noexcept {
  struct stat status = {};
  return fstat(stacks.file.get(), &status) == 0 ? status.st_size : 0;
}

std::string read_from(const StackFile& stacks, off_t start) {
  constexpr off_t kMaxBytes = off_t{1} << 18;
  const auto size = std::clamp<off_t>(size_of(stacks) - start, 0, kMaxBytes);
  std::string text(static_cast<std::size_t>(size), '\0');
  const ssize_t count = pread(stacks.file.get(), text.data(), text.size(), start);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

}  // namespace

std::optional<StackFile> find_stack_file(const std::string& process) {
  constexpr int kMaxFiles = 1024;  // it is opened early, so its number is low
  std::error_code error;
  std::filesystem::directory_iterator entry(process + "/fd", error);
  for (int i = 0; i < kMaxFiles && entry != end(entry); ++i, entry.increment(error)) {
    std::error_code gone;
    const auto path = std::filesystem::read_symlink(entry->path(), gone);
    const int signal = signal_in({entry->path().filename().native(), path.native()});
    if (signal == 0 || !may_get(process, signal)) continue;
    // Without waiting, should it be a pipe of that name.
    FileDescriptor file(open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status = {};
    if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    return StackFile{std::move(file), status.st_dev, status.st_ino, signal};
  }
  return std::nullopt;
}

void PythonStacks::ask(std::span<const pid_t> processes) {
  forget();
  for (const pid_t process : processes) ask(process);
}

void PythonStacks::ask(pid_t process) {
  auto stacks = find_stack_file("/proc/" + std::to_string(process));
  if (!stacks) return;
  const auto has_file = [&stacks](const Asked& asked) {
    return asked.stacks.device == stacks->device && asked.stacks.inode == stacks->inode;
  };
  std::erase_if(asked_, [&](const Asked& asked) {  // of a program that it executed before
    return asked.process == process && !has_file(asked);
  });
  auto asked = std::ranges::find_if(asked_, has_file);
  if (asked != asked_.end() && asked->process != process) return;
  const off_t size = size_of(*stacks);
  if (syscall(SYS_tgkill, process, process, stacks->signal) != 0) return;
  if (asked == asked_.end()) {
    asked_.push_back({process, std::move(*stacks), size, size, size});
  } else {
    asked->start = asked->seen = size;
  }
}

// Python writes a stack in many pieces.
void PythonStacks::read() {
  for (auto& asked : asked_) {
    if (asked.start < 0 || !asked.place.empty()) continue;
    const std::string text = read_from(asked.stacks, asked.start);
    const off_t seen = std::exchange(asked.seen, asked.start + static_cast<off_t>(text.size()));
    const bool is_whole = text.ends_with(" in <module>\n") || seen == asked.seen;
    if (is_whole) asked.place = place_in_stacks(text);
  }
}

void PythonStacks::forget() {
  for (auto& asked : asked_) {
    asked.start = -1;
    asked.place.clear();
  }
}

std::string PythonStacks::place(pid_t process) const {
  const auto asked = std::ranges::find(asked_, process, &Asked::process);
  return asked == asked_.end() ? "" : asked->place;
}

void PythonStacks::subtract_answers(std::vector<Process>& processes) {
  std::erase_if(asked_, [&processes](const Asked& asked) {
    return std::ranges::find(processes, asked.process, &Process::pid) == processes.end();
  });
  for (const auto& asked : asked_) {
    const auto process = std::ranges::find(processes, asked.process, &Process::pid);
    if (!process->io) continue;
    const auto bytes = static_cast<std::uint64_t>(size_of(asked.stacks) - asked.first);
    *process->io -= std::min(bytes, *process->io);
  }
}

}  // namespace ddp::watch
