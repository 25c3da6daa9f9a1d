// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/state/failure_state.h"

#include <utility>

#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {

const char* to_string(FailureKind kind) {
  switch (kind) {
    case FailureKind::error:
      return "error";
    case FailureKind::usage:
      return "usage";
    case FailureKind::killed:
      return "killed";
    case FailureKind::stopped:
      return "stopped";
    case FailureKind::unreachable:
      return "unreachable";
    case FailureKind::silent:
      return "silent";
    case FailureKind::absent:
      return "absent";
    case FailureKind::disagreement:
      return "disagreement";
    case FailureKind::network:
      break;
  }
  return "network";
}

bool FailureState::fail(Failure failure) {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  failure_ = std::move(failure);
  failed_.store(true, std::memory_order_release);
  // The lock is held during the call, so that an observer is no longer running after it has been
  // replaced.
  if (observer_) observer_(*failure_);
  return true;
}

void FailureState::on_first_failure(std::function<void(const Failure&)> observer) {
  const std::lock_guard lock(mutex_);
  observer_ = std::move(observer);
}

void FailureState::report_slow_wait(const std::string& report) const {
  const std::lock_guard lock(mutex_);
  if (slow_wait_observer_) slow_wait_observer_(report);
}

void FailureState::on_slow_wait(std::function<void(const std::string&)> observer) {
  const std::lock_guard lock(mutex_);
  slow_wait_observer_ = std::move(observer);
}

std::optional<Failure> FailureState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FailureState::throw_if_failed() const {
  if (!failed()) return;
  const auto cause = failure();
  throw PeerFailure(cause->rank, cause->text, cause->lost, cause->is_usage_error);
}

}  // namespace ddp::comm
