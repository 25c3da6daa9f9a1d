// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/suspension.h"

#include <condition_variable>
#include <stop_token>

namespace ddp::check {

SuspensionWatch::SuspensionWatch()
    : thread_([this](const std::stop_token& stop) {
        std::condition_variable_any stopped;
        std::unique_lock lock(mutex_);
        while (!stop.stop_requested()) {
          record_.look(Clock::now());
          stopped.wait_for(lock, stop, SuspensionRecord::kLookEvery, [] { return false; });
        }
      }) {}

Clock::duration SuspensionWatch::total() const {
  const std::lock_guard lock(mutex_);
  return record_.look(Clock::now());
}

}  // namespace ddp::check
