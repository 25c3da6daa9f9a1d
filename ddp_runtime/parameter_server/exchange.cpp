// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/exchange.h"

namespace ddp::parameter_server {

std::int64_t RequestSlot::request(const Exchange& exchange) {
  std::unique_lock lock(mutex_);
  exchange_ = exchange;
  at_ = At::handed_in;
  changed_.notify_all();
  changed_.wait(lock, [this] { return at_ == At::finished || error_; });
  if (error_) std::rethrow_exception(error_);
  at_ = At::idle;
  return slowest_;
}

std::optional<Exchange> RequestSlot::take(bool patient) {
  std::unique_lock lock(mutex_);
  if (patient) changed_.wait(lock, [this] { return at_ == At::handed_in || closed_; });
  if (at_ != At::handed_in) return std::nullopt;
  at_ = At::taken;
  return exchange_;
}

void RequestSlot::finish(std::int64_t slowest) {
  const std::lock_guard lock(mutex_);
  slowest_ = slowest;
  at_ = At::finished;
  changed_.notify_all();
}

void RequestSlot::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  changed_.notify_all();
}

void RequestSlot::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool RequestSlot::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace ddp::parameter_server
