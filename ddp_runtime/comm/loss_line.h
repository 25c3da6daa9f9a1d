// SPDX-License-Identifier: Apache-2.0
// The line about a lost rank on stderr. It is printed once, by the first thread that knows of the
// loss.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/failure/state/failure.h"

namespace ddp::comm {

class LossLine {
 public:
  explicit LossLine(std::string program);

  // Prints "<program>: <text of the failure>". For the thread of the error channel, which must not
  // wait for a reader of stderr: does nothing if that would be necessary.
  void print_without_waiting(const Failure& failure) noexcept;
  // For the main thread. `addition`: what the program knows about the lost rank, with a separator
  // at its beginning; may be empty. It has a line of its own if the first part is already printed.
  void print(const Failure& failure, std::string_view addition);

  const std::string& program() const noexcept { return program_; }

 private:
  std::string program_;
  std::mutex mutex_;
  bool printed_ = false;  // guarded by the mutex
};

}  // namespace ddp::comm
