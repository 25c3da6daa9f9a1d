// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/python_stacks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

constexpr int kPatience = 3;

// The signal in ".../slurm-ddp-stacks-37-f3b1 (deleted)"; 0 for the name of another file.
int signal_in(std::string_view path) {
  constexpr std::string_view kStart = "slurm-ddp-stacks-";
  path.remove_prefix(path.rfind('/') + 1);
  if (!path.starts_with(kStart)) return 0;
  const auto number = path.substr(kStart.size());
  const auto signal = parse_decimal(number.substr(0, number.find('-')), NSIG - 1);
  return signal ? static_cast<int>(*signal) : 0;
}

// A process that has executed another program, or has given the signal back, would be killed.
bool handles(const std::string& process, int signal) {
  constexpr std::string_view kCaught = "\nSigCgt:\t";
  constexpr std::size_t kDigits = 16;
  const std::string status = read_kernel_file(process + "/status");
  const auto start = status.find(kCaught);
  if (start == status.npos || signal <= 0) return false;
  // Four bits to a digit, the last digit first.
  const auto bit = static_cast<std::size_t>(signal) - 1;
  const auto mask = std::string_view(status).substr(start + kCaught.size(), kDigits);
  if (mask.size() != kDigits || bit / 4 >= kDigits) return false;
  const auto digit = parse_hexadecimal(mask.substr(kDigits - 1 - bit / 4, 1));
  return digit && ((*digit >> (bit % 4)) & 1U) != 0;
}

std::string directory_of(pid_t process) {
  return "/proc/" + std::to_string(process);
}

off_t size_of(const StackFile& stacks) noexcept {
  struct stat status = {};
  return fstat(stacks.file.get(), &status) == 0 ? status.st_size : 0;
}

std::string read_from(const StackFile& stacks, off_t start) {
  constexpr off_t kMaxBytes = off_t{1} << 20;
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
    const int signal = signal_in(std::filesystem::read_symlink(entry->path(), gone).native());
    if (signal == 0 || !handles(process, signal)) continue;
    // Without waiting, should it be a pipe of that name.
    FileDescriptor file(open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status = {};
    if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    return StackFile{std::move(file), status.st_ino, signal};
  }
  return std::nullopt;
}

void PythonStacks::ask(std::span<const Process> processes, std::size_t most) {
  forget();
  for (const auto& process : processes) {
    if (answers_.size() >= most) return;
    auto stacks = find_stack_file(directory_of(process.pid));
    if (!stacks || std::ranges::any_of(questions_, [&stacks](const Question& earlier) {
          return earlier.stacks.inode == stacks->inode;
        })) {
      continue;
    }
    const off_t start = size_of(*stacks);
    if (kill(process.pid, stacks->signal) != 0) continue;
    questions_.push_back({std::move(*stacks), start});
    answers_.push_back({process.pid, ""});
    patience_ = kPatience;
  }
}

void PythonStacks::read() {
  if (patience_ == 0) return;
  bool is_complete = true;
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    auto& place = answers_[i].place;
    place = place_in_stacks(read_from(questions_[i].stacks, questions_[i].start));
    is_complete = is_complete && !place.empty();
  }
  --patience_;
  if (is_complete) patience_ = 0;
  if (patience_ == 0) questions_.clear();
}

void PythonStacks::forget() {
  questions_.clear();
  answers_.clear();
  patience_ = 0;
}

}  // namespace ddp::watch
