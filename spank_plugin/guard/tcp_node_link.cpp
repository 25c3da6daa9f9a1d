// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/tcp_node_link.h"

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "base/channel/greeting.h"
#include "base/descriptor_limit.h"
#include "base/socket.h"
#include "spank_plugin/guard/end_message.h"
#include "spank_plugin/guard/intervals.h"

namespace ddp::guard {
namespace {

using std::chrono::milliseconds;

// The hub sends something every second, unless its node is busy.
constexpr auto kSilence = kLongestInterval + std::chrono::seconds(1);
constexpr milliseconds kConnectWithin{200};
constexpr milliseconds kGreetWithin{400};
constexpr milliseconds kLastWordWithin{100};
constexpr milliseconds kGoodbyeWithin{300};
constexpr milliseconds kBetweenTries{100};
// Between two searches; the hub's guard may start later, or never.
constexpr milliseconds kFirstPause{500};
constexpr milliseconds kLongestPause{2'000};

// A run's own error channel, which has the same secret, and this channel refuse each other.
Key watch_key(const Key& step_key) {
  return hmac_sha256(step_key, "watch");
}

Listener listen_at_one_of(const std::vector<std::uint16_t>& ports) {
  for (const auto port : ports) {
    Listener listener = open_listener(port);
    if (listener.socket) return listener;
  }
  return {};
}

}  // namespace

TcpNodeLink::TcpNodeLink(LinkOptions options, const Key& step_key)
    : options_(std::move(options)), key_(watch_key(step_key)) {
  thread_ = std::thread([this] { run(); });
}

TcpNodeLink::~TcpNodeLink() {
  is_leaving_ = true;
  wake_event_.notify();
  thread_.join();
}

void TcpNodeLink::finish(const watch::RanksReport& ranks, LastWords kind) {
  publish(ranks);
  is_urgent_ = kind == LastWords::of_last_urgent;
  is_over_ = kind != LastWords::of_one;
  is_leaving_ = true;
  wake_event_.notify();
}

bool TcpNodeLink::is_connected() const noexcept {
  return Clock::now() - heard_.load() < kSilence;
}

void TcpNodeLink::publish(const watch::RanksReport& ranks) {
  Message message{MessageKind::status, number_, watch::to_text(ranks)};
  {
    const std::lock_guard lock(mutex_);
    published_ = std::move(message);
  }
  wake_event_.notify();
}

watch::RanksReport TcpNodeLink::others(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return hub_ ? hub_->ranks(now) : watch::RanksReport{};
}

void TcpNodeLink::ask() {
  const std::lock_guard lock(mutex_);
  if (hub_) hub_->ask();
}

void TcpNodeLink::end_step(const StepEnd& end) {
  {
    const std::lock_guard lock(mutex_);
    if (hub_) hub_->end_step(end);
    if (!is_before(end, end_)) return;
    end_ = end;
    is_end_told_ = false;
  }
  wake_event_.notify();
}

std::optional<StepEnd> TcpNodeLink::step_end() const {
  const std::lock_guard lock(mutex_);
  return hub_ ? hub_->step_end() : end_;
}

bool TcpNodeLink::is_step_end_told() const {
  const std::lock_guard lock(mutex_);
  return hub_ ? hub_->has_told(options_.others) : !end_ || is_end_told_;
}

// Where a watch has no network, each node is watched by itself.
void TcpNodeLink::run() noexcept {
  prctl(PR_SET_NAME, "ddp-guard-link");
  milliseconds pause = kFirstPause;
  while (!is_leaving_) {
    try {
      if (is_hub()) {
        serve();
      } else if (report()) {
        pause = kFirstPause;
      }
    } catch (const std::exception&) {  // no memory or file left: perhaps later
    }
    wait(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  try {
    if (is_over_ && !is_hub()) say_goodbye();
    if (is_over_ && is_hub() && is_urgent_) serve();
  } catch (const std::exception&) {  // the hub then never knows how the ranks ended
  }
}

void TcpNodeLink::serve() {
  raise_descriptor_limit();  // a connection for each node; the task has been started before
  Listener listener = listen_at_one_of(options_.hub.ports);
  if (!listener.socket) return;
  auto hub =
      std::make_unique<NodeHub>(std::move(listener), key_, options_.others, wake_event_.fd());
  NodeHub& served = *hub;
  {
    const std::lock_guard lock(mutex_);
    hub_ = std::move(hub);
    if (end_) hub_->end_step(*end_);
  }
  while (!is_leaving_) {
    served.turn();
    if (!is_leaving_) wake_event_.clear();
  }
  if (is_urgent_.exchange(false)) tell_the_rest(served);
  const std::lock_guard lock(mutex_);
  end_ = hub_->step_end();
  hub_.reset();  // the port is the next guard's
}

// No guard of this node follows, and a node may only now find the hub.
void TcpNodeLink::tell_the_rest(NodeHub& hub) {
  wake_event_.clear();
  const Deadline deadline = Clock::now() + options_.urgent_time;
  while (hub.step_end() && !hub.has_told(options_.others) && Clock::now() < deadline) hub.turn();
}

bool TcpNodeLink::report() {
  auto connection = find_hub(Deadline::max());
  if (!connection) return false;
  {
    // It may be old, and its number from another hub.
    const std::lock_guard lock(mutex_);
    if (!is_leaving_) published_.reset();
    number_ = 0;
  }
  talk(*connection);
  heard_ = Clock::time_point();
  return true;
}

// Of a guard that has not yet found the hub, or has lost it.
void TcpNodeLink::say_goodbye() {
  const Deadline deadline = Clock::now() + (is_urgent_ ? options_.urgent_time : kGoodbyeWithin);
  do {
    if (auto connection = find_hub(deadline)) return talk(*connection);
    if (is_urgent_) std::this_thread::sleep_for(kBetweenTries);
  } while (is_urgent_ && Clock::now() < deadline);
}

std::optional<Connection> TcpNodeLink::find_hub(Deadline deadline) const {
  for (const auto& address : options_.hub.addresses) {
    for (const auto port : options_.hub.ports) {
      if ((is_leaving_ && !is_over_) || Clock::now() >= deadline) return std::nullopt;
      auto connection = Connection::open({address}, port, kConnectWithin);
      if (!connection) continue;
      const RankGreeting greeting(key_, static_cast<int>(options_.node), options_.name);
      if (greet(*connection, greeting, kGreetWithin) == Greeted::welcome) return connection;
    }
  }
  return std::nullopt;
}

void TcpNodeLink::talk(Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    is_end_told_ = false;  // to this hub
  }
  // The hub takes a node in when it has sent something.
  bool is_open = connection.send({MessageKind::alive, 0, {}});
  while (is_open && !is_leaving_) {
    const short wanted = connection.unsent() ? POLLIN | POLLOUT : POLLIN;
    std::array<pollfd, 2> waits{{{wake_event_.fd(), POLLIN, 0}, {connection.fd(), wanted, 0}}};
    poll(waits.data(), waits.size(), static_cast<int>(kLinkTurn.count()));
    if (!is_leaving_) wake_event_.clear();
    is_open = connection.fill();
    hear(connection);
    send_end(connection);
    send_published(connection);
  }
  if (!is_leaving_) return;
  send_end(connection);
  send_published(connection);
  if (is_over_.exchange(false)) connection.send({MessageKind::goodbye, 0, {}});
  connection.flush_within(kLastWordWithin);
}

void TcpNodeLink::hear(Connection& connection) {
  while (const auto message = connection.next()) {
    heard_ = Clock::now();
    if (message->kind == MessageKind::status_request) was_asked_ = true;
    if (message->kind == MessageKind::alive) number_ = message->rank;
    const auto end = parse_end(*message);
    const std::lock_guard lock(mutex_);
    if (!end || !is_before(*end, end_)) continue;
    end_ = end;
    is_end_told_ = true;
  }
}

void TcpNodeLink::send_end(Connection& connection) {
  const std::lock_guard lock(mutex_);
  if (end_ && !is_end_told_) is_end_told_ = connection.send(to_message(*end_));
}

// A report that is still on its way is followed only by the latest one.
void TcpNodeLink::send_published(Connection& connection) {
  if (connection.unsent()) connection.flush();
  if (connection.unsent()) return;
  std::optional<Message> message;
  {
    const std::lock_guard lock(mutex_);
    message = std::exchange(published_, std::nullopt);
  }
  if (message) connection.send(*message);
}

void TcpNodeLink::wait(milliseconds most) const {
  const Deadline deadline = Clock::now() + most;
  while (!is_leaving_ && Clock::now() < deadline) {
    wait_for(wake_event_.fd(), POLLIN, deadline);
    if (!is_leaving_) wake_event_.clear();
  }
}

std::unique_ptr<NodeLink> make_tcp_link(const LinkOptions& options) {
  const auto key = key_from_hex(options.key);
  return key ? std::make_unique<TcpNodeLink>(options, *key) : nullptr;
}

}  // namespace ddp::guard
