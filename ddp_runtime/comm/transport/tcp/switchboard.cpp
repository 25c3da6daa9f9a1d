// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/tcp/switchboard.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "ddp_runtime/comm/transport/thread_settings.h"

namespace ddp::comm {
namespace {

constexpr std::uint64_t kStopEvent = 1;
constexpr int kTickMilliseconds = 500;

}  // namespace

std::string text_of(const Call& call) {
  return fmt::format("{} {} {}", call.receiver, call.callee, call.remark);
}

std::optional<Call> call_of(const std::string& text) {
  const auto first = text.find(' ');
  const auto second = text.find(' ', first == std::string::npos ? first : first + 1);
  if (second == std::string::npos) return std::nullopt;
  Call call{text.substr(0, first), 0, text.substr(second + 1)};
  const char* const end = text.data() + second;
  const auto [stop, error] = std::from_chars(text.data() + first + 1, end, call.callee);
  if (error != std::errc() || stop != end) return std::nullopt;
  return call;
}

bool Mailbox::admits(int rank) {
  const std::lock_guard lock(mutex_);
  return !came_.contains(rank);
}

void Mailbox::forget(int rank) {
  const std::lock_guard lock(mutex_);
  came_.erase(rank);
}

void Mailbox::put(Caller caller) {
  {
    const std::lock_guard lock(mutex_);
    if (!came_.insert(caller.rank).second) return;
    callers_.push_back(std::move(caller));
    has_mail_.store(true, std::memory_order_release);
  }
  arrived_.notify_all();
}

std::vector<Caller> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  has_mail_.store(false, std::memory_order_relaxed);
  return std::exchange(callers_, {});
}

std::vector<Caller> Mailbox::take_before(Deadline deadline) {
  {
    std::unique_lock lock(mutex_);
    arrived_.wait_until(lock, deadline, [this] { return !callers_.empty(); });
  }
  return take();
}

Switchboard::Switchboard(Listener listener, const Key& key, int rank, int ranks)
    : port_(listener.port),
      rank_(rank),
      ranks_(ranks),
      reception_(events_, std::move(listener), key,
                 {[this](int caller, const std::string& who) { return may_join(caller, who); },
                  [this](Reception::Arrival arrival) { join(std::move(arrival)); },
                  [this](const Connection& stranger) { count_unproved(stranger); }}) {
  events_.watch(wake_event_.fd(), kStopEvent);
  thread_ = std::thread([this] { serve(); });
}

Switchboard::~Switchboard() {
  leaving_.store(true, std::memory_order_relaxed);
  wake_event_.notify();
  thread_.join();
}

std::shared_ptr<Mailbox> Switchboard::mailbox(const std::string& receiver) {
  const std::lock_guard lock(mutex_);
  auto& found = mailboxes_[receiver];
  if (!found) found = std::make_shared<Mailbox>();
  return found;
}

bool Switchboard::may_join(int rank, const std::string& who) {
  const auto call = call_of(who);
  return call && call->callee == rank_ && rank >= 0 && mailbox(call->receiver)->admits(rank);
}

void Switchboard::count_unproved(const Connection& stranger) {
  const auto at = stranger.peer();
  const std::lock_guard lock(mutex_);
  ++unproved_.times;
  if (at) unproved_.last = at->host;
}

Switchboard::Unproved Switchboard::unproved() {
  const std::lock_guard lock(mutex_);
  return unproved_;
}

void Switchboard::join(Reception::Arrival arrival) {
  events_.forget(arrival.connection.fd());
  const auto call = call_of(arrival.who);
  if (!call) return;
  mailbox(call->receiver)->put({arrival.rank, call->remark, std::move(arrival.connection)});
}

void Switchboard::serve() noexcept {
  name_this_thread("ddp-tcp");
  while (!leaving_.load(std::memory_order_relaxed)) {
    const auto events = events_.wait(kTickMilliseconds);
    clock_.look();
    for (const auto& event : events) {
      if (event.data.u64 != kStopEvent) {
        const auto most = static_cast<std::size_t>(ranks_);
        out_of_descriptors_ = !reception_.handle(event.data.u64, clock_.now(), most);
      }
    }
    reception_.look_after(clock_.now(), /*open=*/true);
  }
}

}  // namespace ddp::comm
