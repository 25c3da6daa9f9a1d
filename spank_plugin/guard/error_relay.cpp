// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/error_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <thread>

#include "base/deadline.h"

namespace ddp::guard {
namespace {

constexpr std::size_t kBuffer = 1U << 18U;
constexpr std::size_t kTail = 1U << 16U;

// A pipe that is ready takes PIPE_BUF bytes (pipe(7)); a file takes everything.
std::size_t writable_at_once(int file) noexcept {
  struct stat status = {};
  return fstat(file, &status) == 0 && S_ISREG(status.st_mode) ? kBuffer : std::size_t{PIPE_BUF};
}

}  // namespace

ErrorRelay::ErrorRelay(FileDescriptor from, int to)
    : from_(std::move(from)), to_(to), at_once_(writable_at_once(to)), tail_(kTail) {
  if (!from_) return;
  buffer_.resize(kBuffer);
  fcntl(from_.get(), F_SETFL, O_NONBLOCK);  // this end belongs to the guard alone
}

bool ErrorRelay::receive() {
  if (!from_ || !pending_.empty()) return false;
  const ssize_t count = read(from_.get(), buffer_.data(), buffer_.size());
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) from_.close();
  if (count <= 0) return false;
  pending_ = {buffer_.data(), static_cast<std::size_t>(count)};
  tail_.add(pending_);
  is_at_line_start_ = pending_.back() == '\n';
  received_ += pending_.size();
  return true;
}

void ErrorRelay::send() {
  const ssize_t count = write(to_, pending_.data(), std::min(pending_.size(), at_once_));
  if (count >= 0) return pending_.remove_prefix(static_cast<std::size_t>(count));
  if (errno == EAGAIN || errno == EINTR) return;
  pending_ = {};                      // the disk is full: a program may ignore that
  if (errno == EPIPE) from_.close();  // the task must learn that it has no reader
}

bool ErrorRelay::takes_a_line() const noexcept {
  pollfd wait{to_, POLLOUT, 0};
  return target() < 0 && poll(&wait, 1, 0) == 1 && (wait.revents & POLLOUT) != 0;
}

void ErrorRelay::add_line(const std::string& line) {
  if (target() >= 0) return;
  write_all(to_, (is_at_line_start_ ? "" : "\n") + line + "\n");
  is_at_line_start_ = true;
}

void ErrorRelay::wait_until_heard() const {
  constexpr auto kOnTheWay = std::chrono::milliseconds(100);
  const Deadline deadline = Clock::now() + std::chrono::seconds(1);
  int unread = 1;
  while (ioctl(to_, FIONREAD, &unread) == 0 && unread > 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (isatty(to_) == 0) std::this_thread::sleep_for(kOnTheWay);
}

}  // namespace ddp::guard
