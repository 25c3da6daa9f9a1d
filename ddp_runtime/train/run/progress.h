// SPDX-License-Identifier: Apache-2.0
// Progress display: a line that updates itself on a terminal, plain lines in a log.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/run_log.h"

namespace ddp::train {

struct ProgressPoint {
  std::int64_t epoch = 0;  // from 0
  std::int64_t epochs = 0;
  std::int64_t step = 0;   // optimizer steps completed
  std::int64_t steps = 0;  // of the whole run
  double loss = 0;
  double learning_rate = 0;
  double samples_per_second = 0;  // 0: unknown
};

// "epoch 3/20  step 120/500  24%  loss 0.1234  lr 0.1  4567 samples/s  0:12 left". Without what is
// unknown before the first step of this process, as the next two.
std::string progress_line(const ProgressPoint& point, std::optional<double> seconds_left);

// "24%  0:12 left"; at the end of the run only "100%".
std::string share_done_text(const ProgressPoint& point, std::optional<double> seconds_left);

// "  4567 samples/s", "  0.25 samples/s"
std::string rate_text(const ProgressPoint& point);
// A mean of the training or an evaluation. One that is not a number has no sign: that of the
// processor's default would seem to say something.
std::string value_text(double value);

// "0:07", "12:34", "1:02:03".
std::string duration_text(double seconds);

class Progress {
 public:
  // On a terminal the line is redrawn in place on stderr, a few times per second. Elsewhere nothing
  // is drawn; log lines show the progress there. With `log`, lines go there, and nothing is drawn
  // or printed.
  Progress(bool enabled, std::int64_t steps_before, LogFunction log = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void update(const ProgressPoint& point);
  // Prints a permanent line on stdout, or gives it to the program's own log.
  void log(const std::string& line);
  std::optional<double> seconds_left(const ProgressPoint& point) const;

 private:
  void clear();

  bool drawing_;
  bool enabled_;
  LogFunction log_;
  bool on_screen_ = false;
  std::int64_t steps_before_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace ddp::train
