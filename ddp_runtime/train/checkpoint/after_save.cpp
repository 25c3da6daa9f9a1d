// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/after_save.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "base/deadline.h"
#include "base/duration.h"
#include "base/file_descriptor.h"
#include "base/text.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMaxOutput = 64 << 10;  // bytes per command in the log
constexpr std::size_t kMaxShown = 120;        // characters of its last line in a message

std::string last_line_of(std::string_view text) {
  text = trimmed(text);
  const auto begin = text.rfind('\n');
  return sanitize_beginning(begin == std::string_view::npos ? text : text.substr(begin + 1),
                            kMaxShown);
}

}  // namespace

std::string failure_of(const SubprocessOutput& output, double seconds) {
  if (output.timed_out) return "killed after " + rounded_duration(seconds);
  if (output.exit_code == 0) return {};
  if (output.exit_code < 0) return "killed by a signal";
  return fmt::format("exit status {}", output.exit_code);
}

AfterSave::AfterSave(std::string command, std::chrono::duration<double> limit,
                     std::filesystem::path log)
    : command_(std::move(command)), limit_(limit), log_(std::move(log)) {}

AfterSave::~AfterSave() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void AfterSave::run(const std::filesystem::path& checkpoint, std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  if (waiting_ && !std::exchange(said_skipped_, true)) {
    messages_.push_back(fmt::format(
        "the command after the checkpoint of step {} was left out, because the previous one still "
        "runs: commands take longer than the time between checkpoints",
        waiting_->step));
  }
  waiting_ = Work{std::filesystem::absolute(checkpoint), step};
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& e) {
      waiting_.reset();
      messages_.push_back(fmt::format(
          "the command after the checkpoint of step {} could not be started: {}", step, e.what()));
    }
  }
  changed_.notify_all();
}

bool AfterSave::in_use(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  return (running_ && running_->step == step) || (waiting_ && waiting_->step == step);
}

std::vector<std::string> AfterSave::take_messages() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

std::optional<std::uint64_t> AfterSave::unfinished() const {
  const std::lock_guard lock(mutex_);
  if (waiting_) return waiting_->step;
  return running_ ? std::optional(running_->step) : std::nullopt;
}

bool AfterSave::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return !running_ && !waiting_; });
}

void AfterSave::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  waiting_.reset();
  changed_.notify_all();
}

void AfterSave::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || waiting_; });
    if (!waiting_) return;
    running_ = std::exchange(waiting_, std::nullopt);
    const Work current = *running_;
    lock.unlock();
    auto message = run_one(current);
    lock.lock();
    running_.reset();
    if (!message.empty()) messages_.push_back(std::move(message));
    changed_.notify_all();
  }
}

// Returns a sentence about a failure.
std::string AfterSave::run_one(const Work& work) {
  const auto begin = Clock::now();
  const auto stopping = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  };
  SubprocessOutput output;
  std::string failure;
  try {
    output = Subprocess::running({"/bin/sh", "-c", command_},
                                 {{{"SLURM_DDP_CHECKPOINT", work.checkpoint.string()},
                                   {"SLURM_DDP_STEP", std::to_string(work.step)}}})
                 .wait(begin + std::chrono::duration_cast<Clock::duration>(limit_), {kMaxOutput},
                       stopping);
    failure = failure_of(output, seconds_since(begin));
  } catch (const std::exception& e) {
    failure = e.what();
  }
  const auto log_problem =
      append_to_log(work, failure.empty() ? "exit status 0" : failure, output.text);
  if (stopping()) return {};  // the caller of stop() reports it
  if (failure.empty()) return log_problem;
  const auto last = last_line_of(output.text);
  return fmt::format("the command after the checkpoint of step {} failed: {}{}; output: {}",
                     work.step, failure, last.empty() ? "" : ": " + last,
                     log_problem.empty() ? log_.string() : "not stored");
}

// Returns a sentence if the log cannot be written, once.
std::string AfterSave::append_to_log(const Work& work, const std::string& result,
                                     const std::string& output) {
  auto text = fmt::format("step {}: {}\n{}", work.step, result, output);
  if (!text.ends_with('\n')) text += '\n';
  const FileDescriptor file(open(
      log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (file && write_all(file.get(), text)) return {};
  const int code = errno;
  if (std::exchange(said_log_, true)) return {};
  return fmt::format("the output of the command after checkpoints cannot be stored in {}: {}",
                     log_.string(), std::strerror(code));
}

}  // namespace ddp::train
