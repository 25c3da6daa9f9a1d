// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/messages.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/file_descriptor.h"

namespace ddp::elastic {

void Messages::add(std::string_view text) {
  lines_.push_back(fmt::format("ddp-run: {}\n", text));
  if (lines_.size() > most_) {
    lines_.pop_front();
    ++left_out_;
  }
  flush();
}

void Messages::flush() {
  while (!lines_.empty() && is_ready(0)) write_first();
}

void Messages::flush_until(std::chrono::steady_clock::time_point deadline) {
  while (!lines_.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (!is_ready(static_cast<int>(std::max<std::int64_t>(left.count(), 0)))) return;
    write_first();
  }
}

// If a pipe is ready, it takes PIPE_BUF bytes at once.
bool Messages::is_ready(int milliseconds) const {
  pollfd one{file_, POLLOUT, 0};
  return poll(&one, 1, milliseconds) == 1;
}

void Messages::write_first() {
  if (left_out_ > 0) {
    lines_.front().insert(0, fmt::format("ddp-run: messages left out here: {}\n", left_out_));
    left_out_ = 0;
  }
  const std::string_view line = lines_.front();
  const auto part = line.substr(0, PIPE_BUF);
  // A reader that is gone has no use for the rest.
  if (!write_all(file_, part) || part.size() == line.size()) {
    lines_.pop_front();
  } else {
    lines_.front().erase(0, part.size());
  }
}

}  // namespace ddp::elastic
