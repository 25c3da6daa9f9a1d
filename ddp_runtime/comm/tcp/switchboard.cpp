// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/tcp/switchboard.h"

#include <utility>

#include "ddp_runtime/comm/thread_settings.h"

namespace ddp::comm {
namespace {

constexpr std::uint64_t kStopEvent = 1;
constexpr int kTickMilliseconds = 500;

std::string receiver_of(const std::string& who) {
  return who.substr(0, who.find(' '));
}

std::string remark_of(const std::string& who) {
  const auto space = who.find(' ');
  return space == std::string::npos ? "" : who.substr(space + 1);
}

}  // namespace

bool Mailbox::admits(int rank) {
  const std::lock_guard lock(mutex_);
  return !came_.contains(rank);
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

Switchboard::Switchboard(Listener listener, const Key& key, int ranks)
    : port_(listener.port),
      ranks_(ranks),
      reception_(events_, std::move(listener), key,
                 {[this](int rank, const std::string& who) { return may_join(rank, who); },
                  [this](Reception::Arrival arrival) { join(std::move(arrival)); }}) {
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
  return rank >= 0 && rank < ranks_ && mailbox(receiver_of(who))->admits(rank);
}

void Switchboard::join(Reception::Arrival arrival) {
  events_.forget(arrival.connection.fd());
  mailbox(receiver_of(arrival.who))
      ->put({arrival.rank, remark_of(arrival.who), std::move(arrival.connection)});
}

void Switchboard::serve() noexcept {
  name_this_thread("ddp-tcp");
  while (!leaving_.load(std::memory_order_relaxed)) {
    const auto events = events_.wait(kTickMilliseconds);
    clock_.look();
    for (const auto& event : events) {
      if (event.data.u64 != kStopEvent) {
        reception_.handle(event.data.u64, clock_.now(), static_cast<std::size_t>(ranks_));
      }
    }
    reception_.look_after(clock_.now(), /*open=*/true);
  }
}

}  // namespace ddp::comm
