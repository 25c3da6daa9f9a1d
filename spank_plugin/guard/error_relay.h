// SPDX-License-Identifier: Apache-2.0
// Standard error of the task on its way to the launcher: every byte is passed on unchanged, and the
// last ones are kept.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "spank_plugin/guard/tail.h"

namespace ddp::guard {

class ErrorRelay {
 public:
  // `from` is a pipe's end, or none, and then nothing is passed on.
  ErrorRelay(FileDescriptor from, int to);

  // What to wait for with poll(2); -1 for nothing. At most one of them is waited for: what a slow
  // reader has not taken yet holds the task back, as if it wrote there itself.
  int source() const noexcept { return pending_.empty() ? from_.get() : -1; }
  int target() const noexcept { return pending_.empty() ? -1 : to_; }

  // Reads what is there, without waiting. Returns false if there was nothing.
  bool receive();
  // Passes on as much as the launcher takes without waiting.
  void send();
  // How much has been read so far.
  std::size_t received() const noexcept { return received_; }
  // Whether a line fits now, without waiting for the reader.
  bool takes_a_line() const noexcept;
  // Adds a line of the guard's own, after the end of the last one: in one write, because lines of
  // several tasks must not mix. Nothing if the reader has not even taken what came before.
  void add_line(const std::string& line);
  // srun closes its output as soon as a task has ended by a signal, and loses what slurmstepd has
  // not sent by then. When slurmstepd has read a pipe is known; when srun has, is not.
  void wait_until_heard() const;
  std::string_view tail() const noexcept { return tail_.view(); }

 private:
  FileDescriptor from_;
  int to_;
  std::size_t at_once_;  // as much as `to` takes without waiting once poll(2) says that it does
  std::vector<char> buffer_;
  std::string_view pending_;  // of buffer_
  std::size_t received_ = 0;
  bool is_at_line_start_ = true;
  Tail tail_;
};

}  // namespace ddp::guard
