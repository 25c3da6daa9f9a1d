// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace ddp::train {

std::string duration_text(double seconds) {
  constexpr double kMaxSeconds = 1e15;  // fits into an integer
  const auto total =
      static_cast<std::int64_t>(std::llround(std::min(std::max(0.0, seconds), kMaxSeconds)));
  const auto hours = total / 3600;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

namespace {

double percent_done(const ProgressPoint& p) {
  return p.steps > 0 ? 100.0 * static_cast<double>(p.step) / static_cast<double>(p.steps) : 100.0;
}

std::string left_text(std::optional<double> seconds) {
  return seconds ? fmt::format("  {} left", duration_text(*seconds)) : std::string();
}

}  // namespace

std::string share_done_text(const ProgressPoint& point, std::optional<double> seconds_left) {
  const auto percent = fmt::format("{:.0f}%", percent_done(point));
  return point.step >= point.steps ? percent : percent + left_text(seconds_left);
}

std::string rate_text(const ProgressPoint& point) {
  const double rate = point.samples_per_second;
  if (rate <= 0) return {};
  constexpr double kWhole = 10;  // from here on, digits after the point tell nothing
  return rate < kWhole ? fmt::format("  {:.2g} samples/s", rate)
                       : fmt::format("  {:.0f} samples/s", rate);
}

std::string value_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.4f}", value);
}

std::string progress_line(const ProgressPoint& p, std::optional<double> seconds_left) {
  return fmt::format("epoch {}/{}  step {}/{}  {:.0f}%  loss {}  lr {:.4g}{}{}", p.epoch + 1,
                     p.epochs, p.step, p.steps, percent_done(p), value_text(p.loss),
                     p.learning_rate, rate_text(p), left_text(seconds_left));
}

Progress::Progress(bool enabled, std::int64_t steps_before, LogFunction log)
    : drawing_(enabled && !log && isatty(STDERR_FILENO) == 1),
      enabled_(enabled),
      log_(std::move(log)),
      steps_before_(steps_before),
      started_(std::chrono::steady_clock::now()) {}

std::optional<double> Progress::seconds_left(const ProgressPoint& point) const {
  const auto done = static_cast<double>(point.step - steps_before_);
  if (done <= 0) return std::nullopt;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started_;
  return elapsed.count() / done * static_cast<double>(point.steps - point.step);
}

void Progress::update(const ProgressPoint& point) {
  if (!drawing_) return;
  const auto now = std::chrono::steady_clock::now();
  if (on_screen_ && now - drawn_ < std::chrono::milliseconds(250)) return;
  drawn_ = now;
  on_screen_ = true;
  fmt::print(stderr, "\r\033[K{}", progress_line(point, seconds_left(point)));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!on_screen_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  on_screen_ = false;
}

void Progress::log(const std::string& line) {
  if (!enabled_) return;
  if (log_) return log_(line);
  clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace ddp::train
