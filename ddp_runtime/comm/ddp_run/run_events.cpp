// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/ddp_run/run_events.h"

#include <poll.h>
#include <sys/stat.h>

#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/text.h"

namespace ddp::comm {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{100};
constexpr std::size_t kMaxFailureText = 2000;

// The pipe that the variable names; nullopt if there is none, for example because a program between
// the agent and this one has closed it.
std::optional<int> open_pipe() {
  const char* text = std::getenv(kRunEventsVariable);
  const auto number = text == nullptr ? std::nullopt : parse_decimal(text, 1 << 20);
  if (!number) return std::nullopt;
  const auto descriptor = static_cast<int>(*number);
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return std::nullopt;
  return descriptor;
}

// Never waits: an agent that does not read has been stopped. A line of at most PIPE_BUF bytes is
// written as a whole if the pipe is ready.
void tell(const nlohmann::json& event) {
  static const auto pipe = open_pipe();
  if (!pipe) return;
  const auto line = event.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  pollfd ready{*pipe, POLLOUT, 0};
  if (line.size() > PIPE_BUF || poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  write_all(*pipe, line);
}

}  // namespace

void tell_restoring() noexcept {
  try {
    tell({{"event", "restoring"}});
  } catch (const std::exception&) {
    // the time counts as that of the launch
  }
}

void tell_training(std::int64_t step) noexcept {
  try {
    tell({{"event", "training"}, {"step", step}});
  } catch (const std::exception&) {
    // the first progress says nearly the same
  }
}

void tell_progress(const RunProgress& progress, bool in_any_case) noexcept {
  static Clock::time_point told;
  const auto now = Clock::now();
  if (!in_any_case && now - told < kProgressInterval) return;
  told = now;
  try {
    tell({{"event", "progress"},
          {"step", progress.step},
          {"step_seconds", progress.step_seconds},
          {"stall_seconds", progress.stall_seconds},
          {"saves", progress.saves}});
  } catch (const std::exception&) {
    // no memory for a line: the next one tells more
  }
}

void tell_kept_on_disk(std::int64_t step) noexcept {
  try {
    tell({{"event", "kept"}, {"tier", "disk"}, {"step", step}});
  } catch (const std::exception&) {
    // ddp-run only counts the steps that are repeated
  }
}

void tell_kept_in_memory(std::int64_t step, bool divided) noexcept {
  try {
    tell({{"event", "kept"}, {"tier", "memory"}, {"step", step}, {"divided", divided}});
  } catch (const std::exception&) {
    // ddp-run only counts the steps that are repeated
  }
}

void tell_failure(int rank, std::string_view text, bool is_usage_error) noexcept {
  try {
    tell({{"event", "told"},
          {"rank", rank},
          {"text", beginning_of(text, kMaxFailureText)},
          {"usage_error", is_usage_error}});
  } catch (const std::exception&) {
    // its exit code says the rest
  }
}

}  // namespace ddp::comm
