// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/ranks/step_boundary.h"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <span>

namespace ddp::train {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGUSR1, SIGUSR2};

// A signal handler can access only static data.
std::atomic<int> noted = 0;
std::atomic<bool> ignored = false;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int number) noexcept {
  noted = number;
}

constexpr std::int64_t kGoOn = 0;
constexpr std::int64_t kTimeIsUp = 1;
constexpr std::int64_t kSignal = 100;  // plus the signal's number

// Covers the coarse resolution of SLURM's clock, and the time from this check to the save.
constexpr double kMarginSeconds = 10;

std::string reason_text(std::int64_t value) {
  if (value == kGoOn) return {};
  if (value == kTimeIsUp) return "the job's time is nearly up";
  const auto number = static_cast<int>(value - kSignal);
  return fmt::format("SIG{} was received", sigabbrev_np(number));
}

}  // namespace

struct StopSignals::Before {
  struct sigaction action = {};
};

StopSignals::StopSignals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    before_[i] = std::make_unique<Before>();
    sigaction(kSignals[i], &action, &before_[i]->action);
  }
}

StopSignals::~StopSignals() {
  // A second signal must not kill a process that is about to exit with its own exit code.
  if (received() != 0 || ignored) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i]->action, nullptr);
  }
}

int StopSignals::received() noexcept {
  return noted;
}

void StopSignals::forget() noexcept {
  noted = 0;
}

void ignore_stop_signals() noexcept {
  ignored = true;
  for (const int number : kSignals) std::signal(number, SIG_IGN);
}

double lead_seconds(double longest_step, double longest_save) noexcept {
  return longest_step + 1.5 * longest_save + kMarginSeconds;
}

StepBoundary::StepBoundary(comm::Group& group)
    : channel_(group.channel("step boundary")),
      values_(std::make_shared<std::array<std::int64_t, 5>>()) {}

void StepBoundary::begin(bool writing, double lead, bool save, Copies copies) {
  auto& [reason, still_writing, save_due, still_copying, copy_due] = *values_;
  reason = kGoOn;
  still_writing = writing ? 1 : 0;
  save_due = save ? 1 : 0;
  still_copying = copies.writing ? 1 : 0;
  copy_due = copies.wanted ? 1 : 0;
  const int number = StopSignals::received();
  if (number != 0) {
    reason = kSignal + number;
  } else if (deadline_) {
    const std::chrono::duration<double> left = *deadline_ - std::chrono::steady_clock::now();
    if (left.count() < lead) reason = kTimeIsUp;
  }
  work_ = channel_.all_reduce(comm::buffer_of(std::span<std::int64_t>(*values_)),
                              comm::ReduceOp::max, "agreement at the end of a step", values_);
}

StepBoundary::Agreed StepBoundary::end() {
  work_.wait();
  // From here on this rank has noted the signal, too.
  if (values_->at(0) >= kSignal) noted = static_cast<int>(values_->at(0) - kSignal);
  return {reason_text(values_->at(0)), values_->at(1) != 0, values_->at(2) != 0,
          values_->at(3) != 0, values_->at(4) != 0};
}

}  // namespace ddp::train
