// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/spoke.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/failure/hub_search.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/secret/text.h"
#include "ddp_runtime/comm/transport/thread_settings.h"

namespace ddp::comm {
namespace {

constexpr auto kGoodbyeWithin = std::chrono::seconds(2);
constexpr auto kLastWordWithin = std::chrono::milliseconds(100);

MessageKind message_for(const Failure& failure) {
  if (failure.is_usage_error) return MessageKind::usage_error;
  switch (failure.symptom) {
    case Symptom::long_wait:
      return MessageKind::timeout;
    case Symptom::wrong_length:
      return MessageKind::broken;
    case Symptom::remote_error:
      return MessageKind::remote_error;
    case Symptom::none:
      break;
  }
  return MessageKind::failure;
}

// The address that worked comes first.
std::vector<Connection::Endpoint> addresses_of_hub(
    const Connection& connection, const std::vector<Connection::Endpoint>& others) {
  std::vector<Connection::Endpoint> all;
  if (auto peer = connection.peer()) all.push_back(*std::move(peer));
  for (const auto& other : others) {
    if (std::find(all.begin(), all.end(), other) == all.end()) all.push_back(other);
  }
  return all;
}

}  // namespace

Spoke::Spoke(FailureState& failures, const FlightRecorder& recorder, Connection connection, Who who,
             ChannelOptions options)
    : ChannelEnd(failures, std::move(options)),
      recorder_(recorder),
      who_(std::move(who)),
      connection_(std::move(connection)),
      reconnector_(addresses_of_hub(connection_, who_.addresses), who_.key, who_.rank),
      heard_(clock_.now()),
      thread_([this] { listen(); }) {
  failures_.on_first_failure([this](const Failure&) { wake_event_.notify(); });
  listen_for_slow_waits();
  wake_event_.notify();  // a failure may have occurred already
}

Spoke::~Spoke() {
  failures_.on_first_failure({});
  failures_.on_slow_wait({});
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_event_.notify();
  thread_.join();
}

void Spoke::listen() noexcept {
  name_this_thread("ddp-spoke");
  while (true) {
    try {
      turn();
    } catch (const std::exception& e) {
      failures_.fail(
          {.rank = who_.rank, .text = std::string("the error channel failed: ") + e.what()});
    }
    const std::lock_guard lock(mutex_);
    if (leaving_) break;
  }
  if (over_) return;
  send_failure();  // if a failure occurred after the last turn
  connection_.send({MessageKind::goodbye, who_.rank, {}});
  connection_.flush_within(kGoodbyeWithin);
}

void Spoke::turn() {
  const short wanted = connection_.unsent() ? POLLIN | POLLOUT : POLLIN;
  const bool open = !over_ && connection_.state() == StreamState::open;
  std::array<pollfd, 2> entries{
      {{wake_event_.fd(), POLLIN, 0}, {open ? connection_.fd() : -1, wanted, 0}}};
  poll(entries.data(), entries.size(), static_cast<int>(tick().count()));
  clock_.look();
  wake_event_.clear();
  if (!over_) {
    send_failure();
    send_slow_wait();
    handle_hub_messages();
  }
  if (!tick_is_due()) return;
  end_if_stuck();
  if (over_) return;
  if (heartbeat_is_due() && !connection_.unsent()) {
    connection_.send({MessageKind::alive, failures_.stalled() ? 1 : 0, {}});
  }
  check_liveness();
}

void Spoke::send_failure() {
  const auto failure = failures_.failure();
  if (reported_ || !failure || failure->rank != who_.rank) return;
  reported_ = true;
  connection_.send({message_for(*failure), who_.rank, failure->text});
  send_status();
}

void Spoke::send_slow_wait() {
  if (const auto report = take_slow_wait()) {
    connection_.send({MessageKind::slow_wait, who_.rank, *report});
  }
}

void Spoke::send_status() {
  connection_.send({MessageKind::status, who_.rank, as_text(to_json(recorder_.snapshot()))});
}

void Spoke::act_on(const Message& message) {
  if (message.kind == MessageKind::status_request) return send_status();
  const bool lost = message.kind == MessageKind::loss;
  const bool mistake = message.kind == MessageKind::usage_error;
  if (message.kind != MessageKind::failure && !lost && !mistake) return;
  // Sends the status before this rank's own operations fail because of the failure.
  send_status();
  const Failure failure{
      .rank = message.rank, .text = message.text, .lost = lost, .is_usage_error = mistake};
  set_verdict(failure);
  failures_.fail(failure);
}

void Spoke::handle_hub_messages() {
  if (connection_.state() != StreamState::open) return;
  bool open = false;
  bool ours = true;
  try {
    open = connection_.fill();
    while (const auto message = connection_.next()) {
      heard_ = clock_.now();
      act_on(*message);
    }
    if (connection_.unsent()) connection_.flush();
  } catch (const RuntimeError&) {
    ours = false;  // not our protocol
  }
  if (!ours || (!open && connection_.state() == StreamState::ended)) {
    lose_hub(exited_unexpectedly(0, who_.hub));
  }
}

// See liveness.h. The hub's verdict has priority, because the hub hears all ranks and this rank
// hears only the hub.
void Spoke::check_liveness() {
  const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - heard_);
  if (silent < options_.liveness.reconnect) return;
  const bool acknowledges = connection_.acknowledged(options_.liveness.reconnect);
  const SignsOfLife hub{0, who_.hub, silent - options_.liveness.heartbeat, acknowledges};
  // After a failure, this rank waits for the verdict, but no wait is counted as a stall anymore.
  const bool waiting = failures_.stalled() || failures_.failed();
  const auto lost = find_lost(std::span(&hub, 1), waiting, options_.liveness);
  if (!lost.empty()) {
    std::string text = describe(lost, options_.liveness.silence);
    if (reconnector_.stranger()) text += "; " + describe_stranger(*reconnector_.stranger());
    // If the hub was only stopped, it reads this before the end of the connection, and does not
    // mistake this rank for a killed one.
    connection_.send({MessageKind::hub_lost, acknowledges ? 1 : 0, text});
    connection_.flush_within(kLastWordWithin);
    return lose_hub(
        {.rank = 0, .text = std::move(text), .lost = true, .kind = kind_of(lost.front().kind)});
  }
  if (acknowledges) return;
  if (auto fresh = reconnector_.step(tick())) use(*std::move(fresh));
}

// Resends messages that were not delivered, so that a failure is not lost with a connection.
void Spoke::use(Connection fresh) {
  connection_ = std::move(fresh);
  clock_.look();
  heard_ = clock_.now();
  connection_.send({MessageKind::alive, failures_.stalled() ? 1 : 0, {}});
  reported_ = false;
  send_failure();
}

void Spoke::lose_hub(const Failure& failure) {
  over_ = true;
  // A symptom on this rank does not hide the cause.
  const auto own = failures_.failure();
  const bool is_cause = !own || own->symptom != Symptom::none;
  if (own && is_cause) set_verdict(failure);
  {
    const std::lock_guard lock(mutex_);
    hub_gone_ = true;
  }
  changed_.notify_all();
  const bool is_first = failures_.fail(failure);
  if (is_first || (own && is_cause)) report_if_lost(failure);
}

}  // namespace ddp::comm
