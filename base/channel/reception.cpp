// SPDX-License-Identifier: Apache-2.0
#include "base/channel/reception.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace ddp {
namespace {

// Limit on pending connections beyond the number of missing ranks.
constexpr std::size_t kMaxPendingConnections = 256;
constexpr auto kHelloWithin = std::chrono::seconds(2);
// Generous, because the machine of a rank may be busy. A rank whose connection is closed
// reconnects.
constexpr auto kProofWithin = std::chrono::seconds(10);
// Limit on connections accepted per turn, so that pending connections are served, too.
constexpr int kMaxAccepted = 64;

}  // namespace

Reception::Reception(EventQueue& events, Listener listener, const Key& key, Guest guest)
    : events_(events), listener_(std::move(listener)), key_(key), guest_(std::move(guest)) {
  events_.watch(listener_.socket.get(), kFirstKey);
}

bool Reception::handle(std::uint64_t key, TimePoint now, std::size_t missing) {
  if (key == kFirstKey) return accept(now, missing);
  hear(key);
  return true;
}

bool Reception::accept(TimePoint now, std::size_t missing) {
  for (int i = 0; i < kMaxAccepted; ++i) {
    FileDescriptor socket(
        accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!full || drop_one()) return true;
      // As long as a connection is waiting, accept(2) would fail again immediately.
      listener_.socket.close();
      listen_at_ = now + std::chrono::seconds(1);
      return false;
    }
    if (strangers_.size() >= missing + kMaxPendingConnections) drop_one();
    const std::uint64_t key = next_++;
    events_.watch(socket.get(), key);
    auto& stranger =
        strangers_.emplace(key, Stranger{Connection(std::move(socket)), now, {}}).first->second;
    stranger.connection.accept_at_most(kMaxGreeting);
    hear(key);  // most ranks have already sent their hello
  }
  return true;
}

void Reception::hear(std::uint64_t key) {
  const auto found = strangers_.find(key);
  if (found == strangers_.end()) return;
  Stranger& stranger = found->second;
  bool keep = false;
  std::optional<Message> message;
  try {
    keep = stranger.connection.fill();
    while (keep && (message = stranger.connection.next()) && !stranger.welcomed) {
      keep = greet(stranger, *message);
    }
    if (stranger.connection.unsent()) keep = false;  // does not read the answer
  } catch (const std::exception&) {
    keep = false;  // not our protocol
  }
  if (keep && !message) return;
  if (keep) {
    guest_.join({stranger.greeting.rank(), stranger.greeting.who(), std::move(stranger.connection),
                 *std::move(message)});
  } else if (guest_.unproved && stranger.greeting.challenged() && !stranger.proved) {
    guest_.unproved(stranger.connection);
  }
  strangers_.erase(found);
}

// Returns whether the connection may stay.
bool Reception::greet(Stranger& stranger, const Message& message) {
  HubGreeting& greeting = stranger.greeting;
  if (!greeting.challenged()) {
    const auto challenge = greeting.challenge(message, key_);
    return challenge && stranger.connection.send(*challenge);
  }
  stranger.proved = greeting.accepts(message, key_);
  if (!stranger.proved || !guest_.may_join(greeting.rank(), greeting.who())) return false;
  const SessionKeys keys = greeting.session(key_);
  stranger.connection.seal(keys.of_hub, keys.of_rank);
  stranger.welcomed = true;
  return stranger.connection.send({MessageKind::welcome, 0, {}});
}

void Reception::look_after(TimePoint now, bool open) {
  // Keeps connections of accepted ranks, which may be about to use them.
  std::erase_if(strangers_, [&](const auto& entry) {
    const Stranger& stranger = entry.second;
    const auto timeout = stranger.greeting.challenged() ? kProofWithin : kHelloWithin;
    return !stranger.welcomed && (!open || now > stranger.since + timeout);
  });
  if (!open) {
    listener_.socket.close();
  } else if (!listener_.socket && now >= listen_at_) {
    listen_at_ = now + std::chrono::seconds(1);
    if (auto listener = listen_again(listener_.port)) {
      listener_ = std::move(*listener);
      events_.watch(listener_.socket.get(), kFirstKey);
    }
  }
}

void Reception::tell_the_welcomed(const Message& message) {
  for (auto& [key, stranger] : strangers_) {
    if (stranger.welcomed) stranger.connection.send(message);
  }
}

// Among the connections that have sent the least, closes the oldest one, which has had the most
// time. Returns false if there is none.
bool Reception::drop_one() {
  const auto oldest = [this](const auto& condition) {
    return std::find_if(strangers_.begin(), strangers_.end(),
                        [&](const auto& entry) { return condition(entry.second); });
  };
  auto one = oldest([](const Stranger& s) { return !s.greeting.challenged(); });
  if (one == strangers_.end()) one = oldest([](const Stranger& s) { return !s.welcomed; });
  if (one == strangers_.end()) return false;
  strangers_.erase(one);
  return true;
}

}  // namespace ddp
