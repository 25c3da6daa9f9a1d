// SPDX-License-Identifier: Apache-2.0
// What ddp-run and its agents say to the user, on the standard error.
//
// A reader that does not read (a pipe that is full, a terminal that was stopped by Ctrl-S) must not
// delay a decision: what cannot be written at once is kept for later, and the oldest lines are left
// out if they become many.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace ddp::elastic {

class Messages {
 public:
  // `file`: a descriptor, which stays open.
  explicit Messages(int file, std::size_t most = 1000) : file_(file), most_(most) {}

  // `text`: one line, or several.
  void add(std::string_view text);
  // Writes what can be written without waiting.
  void flush();
  void flush_until(std::chrono::steady_clock::time_point deadline);

 private:
  bool is_ready(int milliseconds) const;
  void write_first();

  int file_;
  std::size_t most_;
  std::deque<std::string> lines_;
  std::size_t left_out_ = 0;
};

}  // namespace ddp::elastic
