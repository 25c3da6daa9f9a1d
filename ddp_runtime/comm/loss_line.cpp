// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/loss_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <exception>
#include <utility>

namespace ddp::comm {
namespace {

bool can_be_written(int fd) {
  pollfd one{fd, POLLOUT, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) != 0;
}

}  // namespace

LossLine::LossLine(std::string program) : program_(std::move(program)) {}

void LossLine::print_without_waiting(const Failure& failure) noexcept {
  try {
    const std::string line = fmt::format("{}: {}\n", program_, failure.text);
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || printed_) return;
    // A pipe that has room takes this much without waiting.
    if (line.size() > PIPE_BUF || !can_be_written(STDERR_FILENO)) return;
    printed_ = write(STDERR_FILENO, line.data(), line.size()) > 0;
  } catch (const std::exception&) {
    // no memory for the line: the main thread prints it
  }
}

void LossLine::print(const Failure& failure, std::string_view addition) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(printed_, true)) {
    fmt::print(stderr, "{}: {}{}\n", program_, failure.text, addition);
  } else if (!addition.empty()) {
    fmt::print(stderr, "{}: rank {} was lost{}\n", program_, failure.rank, addition);
  }
}

}  // namespace ddp::comm
