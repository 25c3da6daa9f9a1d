// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/hub.h"

#include <algorithm>
#include <utility>

#include "base/atomic_file.h"
#include "base/descriptor_limit.h"
#include "base/errors.h"
#include "base/json/bounded_json.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/secret/text.h"
#include "ddp_runtime/comm/transport/thread_settings.h"

namespace ddp::comm {
namespace {

// A live process answers within milliseconds, even if its other threads are busy.
constexpr auto kAnswerWithin = std::chrono::seconds(2);
// Time for the other ranks of a lost rank's node to answer that they are alive, so that ranks that
// die together are reported together.
constexpr auto kLossWindow = std::chrono::milliseconds(500);
// Time to wait for the other ranks' status reports after a failure.
constexpr auto kDumpAfter = std::chrono::milliseconds(500);

// Event keys: ranks are numbered from 1; the keys of the reception come after them.
constexpr std::uint64_t kWakeEvent = std::uint64_t{1} << 62;

// Accepts a malformed answer, because even that proves that the rank is alive.
RankSnapshot account_in(const std::string& text) {
  try {
    return snapshot_from_json(parse_bounded_json(text));
  } catch (const RuntimeError&) {
    RankSnapshot unreadable;
    unreadable.phase = "(malformed status report)";
    return unreadable;
  }
}

// A report replaces one of less weight.
int weight(Symptom symptom) {
  switch (symptom) {
    case Symptom::none:
      return 0;
    case Symptom::remote_error:
      return 1;
    case Symptom::long_wait:
    case Symptom::wrong_length:
      break;
  }
  return 2;
}

Message heartbeat(bool stalled) {
  return {MessageKind::alive, stalled ? 1 : 0, {}};
}

}  // namespace

Hub::Hub(FailureState& failures, const FlightRecorder& recorder, Listener listener, const Key& key,
         int ranks, ChannelOptions options)
    : ChannelEnd(failures, std::move(options)),
      recorder_(recorder),
      peers_(static_cast<std::size_t>(ranks)),
      missing_(static_cast<std::size_t>(ranks - 1)),
      reception_(events_, std::move(listener), key,
                 {[this](int rank, const std::string& who) { return may_join(rank, who); },
                  [this](Reception::Arrival arrival) { join(std::move(arrival)); }}),
      awaited_(missing_) {
  events_.watch(wake_event_.fd(), kWakeEvent);
  thread_ = std::thread([this] { serve(); });
  failures_.on_first_failure([this](const Failure&) { wake_event_.notify(); });
  listen_for_slow_waits();
}

Hub::~Hub() {
  // The other ranks learn the cause of a failure only from this end.
  if (failures_.failed()) {
    verdict(std::chrono::seconds(5));
  } else {
    wait_for_peer_exit(std::chrono::seconds(5));
  }
  failures_.on_first_failure({});
  failures_.on_slow_wait({});
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_event_.notify();
  thread_.join();
}

bool Hub::wait_for_peer_exit(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return awaited_ == 0 && !record_is_due_; });
  return gone_ + 1 >= peers_.size();
}

void Hub::serve() noexcept {
  name_this_thread("ddp-hub");
  bool over = false;
  while (!over) {
    try {
      {
        const std::lock_guard lock(mutex_);
        over = leaving_;
      }
      // Runs one more turn before the thread exits, in case a failure occurred just before.
      turn(over ? 0 : wait_milliseconds());
      if (dump_at_ && (clock_.now() >= *dump_at_ || no_account_will_come())) write_dump();
    } catch (const std::exception& e) {
      failures_.fail({.rank = 0, .text = std::string("the error channel failed: ") + e.what()});
    }
  }
  for (auto& other : peers_) {
    if (present(other)) other.connection.flush_within(std::chrono::milliseconds(100));
  }
}

bool Hub::no_account_will_come() {
  const std::lock_guard lock(mutex_);
  return leaving_ || awaited_ == 0;
}

void Hub::turn(int milliseconds) {
  const auto events = events_.wait(milliseconds);
  clock_.look();
  for (const auto& event : events) handle(event.data.u64);
  if (const auto report = take_slow_wait()) {
    last_slow_wait_ = *report;
    begin_diagnosis({.rank = 0, .text = *report});
  }
  announce_losses();
  process_failures();
  diagnose_hang();
  if (!tick_is_due()) return;
  reception_.look_after(clock_.now(), expects_more());
  check_liveness();
  if (heartbeat_is_due()) send_heartbeats();
  end_if_stuck();
}

int Hub::wait_milliseconds() const {
  auto until = clock_.now() + tick();
  if (pending_losses_) until = std::min(until, pending_losses_->until);
  if (diagnosis_) until = std::min(until, diagnosis_->until);
  if (dump_at_) until = std::min(until, *dump_at_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_.now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

void Hub::handle(std::uint64_t key) {
  if (key == kWakeEvent) {
    wake_event_.clear();
  } else if (key >= Reception::kFirstKey) {
    if (!reception_.handle(key, clock_.now(), missing_)) no_descriptors_left();
  } else {
    handle_messages(static_cast<int>(key));
  }
}

// Accepts a rank that has not joined, or the same process when it reconnects.
bool Hub::may_join(int number, const std::string& who) const {
  if (number < 1 || static_cast<std::size_t>(number) >= peers_.size()) return false;
  const Peer& rank = peers_[static_cast<std::size_t>(number)];
  return !rank.gone && (!rank.joined || rank.who == who);
}

// Called when the rank knows that it was accepted. Before that, it may close this connection and
// try another one, which must not look like a lost rank.
void Hub::join(Reception::Arrival arrival) {
  if (!may_join(arrival.rank, arrival.who)) return;
  Peer& rank = peer(arrival.rank);
  if (!std::exchange(rank.joined, true)) --missing_;
  rank.who = std::move(arrival.who);
  rank.heard = clock_.now();
  rank.sending = false;
  rank.asked = false;
  rank.connection = std::move(arrival.connection);  // closes the previous one
  events_.change(rank.connection.fd(), static_cast<std::uint64_t>(arrival.rank), false);
  if (reported_) send(arrival.rank, verdict_message());
  if (!act_on(arrival.rank, arrival.first)) return leave(arrival.rank);
  handle_messages(arrival.rank);
}

void Hub::no_descriptors_left() {
  if (missing_ == 0) return;
  failures_.fail({.rank = 0, .text = out_of_descriptors(missing_, peers_.size() - 1)});
}

// Once all ranks have joined, no connection is expected until a rank has to reconnect.
bool Hub::expects_more() const {
  return missing_ > 0 || std::any_of(peers_.begin() + 1, peers_.end(), [this](const Peer& m) {
           return present(m) && (m.connection.state() != StreamState::open ||
                                 clock_.now() > m.heard + options_.liveness.reconnect / 2);
         });
}

void Hub::handle_messages(int number) {
  Peer& rank = peer(number);
  if (!present(rank)) return;
  if (rank.connection.state() != StreamState::open) return rank.connection.close();
  bool open = false;
  try {
    open = rank.connection.fill();
    while (const auto message = rank.connection.next()) {
      rank.heard = clock_.now();
      if (!act_on(number, *message)) return leave(number);
    }
    if (rank.connection.unsent()) rank.connection.flush();
  } catch (const std::exception&) {
    open = false;  // not our protocol
    rank.connection.close();
  }
  if (!open && rank.connection.state() == StreamState::broken) {
    rank.connection.close();  // until it reconnects
  } else if (!open) {
    record_loss({number, rank.who, LossKind::killed});
    leave(number);
  } else if (rank.sending != rank.connection.unsent()) {
    rank.sending = rank.connection.unsent();
    events_.change(rank.connection.fd(), static_cast<std::uint64_t>(number), rank.sending);
  }
}

bool Hub::act_on(int number, const Message& message) {
  Peer& rank = peer(number);
  switch (message.kind) {
    case MessageKind::failure:
    case MessageKind::usage_error:
      // Ignores reports of ranks that wait for the lost ranks, because these waits are not the
      // cause.
      if (pending_losses_) return true;
      learn_of({.rank = number,
                .text = message.text,
                .is_usage_error = message.kind == MessageKind::usage_error});
      return true;
    case MessageKind::remote_error:
      begin_diagnosis({.rank = number, .text = message.text, .symptom = Symptom::remote_error});
      return true;
    case MessageKind::broken:
      begin_diagnosis({.rank = number, .text = message.text, .symptom = Symptom::wrong_length});
      return true;
    case MessageKind::timeout:
      begin_diagnosis({.rank = number, .text = message.text, .symptom = Symptom::long_wait});
      return true;
    case MessageKind::slow_wait:
      rank.stalled = true;
      last_slow_wait_ = message.text;
      begin_diagnosis({.rank = number, .text = message.text});
      return true;
    case MessageKind::alive:
      rank.stalled = message.rank != 0;
      return true;
    case MessageKind::status:
      rank.asked = false;
      rank.account = account_in(message.text);
      return true;
    case MessageKind::hub_lost:
      given_up(message);
      return false;
    case MessageKind::goodbye:
      return false;
    default:
      return true;
  }
}

// A failure that only is a symptom, on rank 0, does not hide the cause.
void Hub::learn_of(const Failure& failure) {
  if (failures_.fail(failure) || reported_) return;
  if (failures_.failure()->symptom != Symptom::none) announce(failure);
}

// This process was stopped or cut off, and is back: the other ranks have exited because of it.
// Ranks whose connections closed without a goodbye in the meantime were terminated when the job
// ended, and are not the cause.
void Hub::given_up(const Message& message) {
  if (reported_) return;
  pending_losses_.reset();
  const auto kind = message.rank != 0 ? LossKind::stopped : LossKind::unreachable;
  losses_.assign(1, {0, process_name(), kind});
  announce({.rank = 0, .text = message.text, .lost = true, .kind = kind_of(kind)});
}

void Hub::send(int number, const Message& message) {
  Peer& rank = peer(number);
  if (!present(rank) || !rank.connection) return;
  rank.connection.send(message);
  if (rank.connection.unsent() && !rank.sending) {
    rank.sending = true;
    events_.change(rank.connection.fd(), static_cast<std::uint64_t>(number), true);
  }
}

void Hub::ask(int number) {
  Peer& rank = peer(number);
  rank.account.reset();
  rank.asked = present(rank) && rank.connection;
  send(number, {MessageKind::status_request, 0, {}});
}

void Hub::leave(int number) {
  Peer& rank = peer(number);
  rank.gone = true;
  rank.asked = false;
  rank.connection.close();
  {
    const std::lock_guard lock(mutex_);
    ++gone_;
  }
  stop_awaiting(rank);
}

void Hub::stop_awaiting(Peer& rank) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(rank.awaited, false)) --awaited_;
  }
  changed_.notify_all();
}

void Hub::send_heartbeats() {
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
    // Sends no heartbeats on a connection that still has unsent data.
    if (!peers_[rank].connection.unsent()) {
      send(static_cast<int>(rank), heartbeat(failures_.stalled()));
    }
  }
}

// Whether a rank that can be heard is stalled.
bool Hub::stalled() const {
  const auto recently = clock_.now() - 3 * options_.liveness.heartbeat;
  return failures_.stalled() || std::any_of(peers_.begin() + 1, peers_.end(), [&](const Peer& m) {
           return present(m) && m.stalled && m.heard >= recently;
         });
}

void Hub::check_liveness() {
  if (reported_ || pending_losses_) return;
  std::vector<SignsOfLife> signs;
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
    const Peer& m = peers_[rank];
    const auto silent =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - m.heard);
    if (!present(m) || silent < options_.liveness.silence / 4) continue;
    signs.push_back({static_cast<int>(rank), m.who, silent,
                     m.connection && m.connection.acknowledged(options_.liveness.reconnect)});
  }
  if (signs.empty()) return;
  for (auto& loss : find_lost(signs, stalled(), options_.liveness)) record_loss(std::move(loss));
}

// Asks the other ranks of the lost rank's node for their status. Within milliseconds, each of them
// answers or its connection closes.
void Hub::record_loss(Loss loss) {
  if (is_lost(loss.rank)) return;  // already lost because it was silent
  if (is_lost(0)) return;          // the rank exited because this process was lost
  losses_.push_back(loss);
  if (reported_) return;
  const bool first = !pending_losses_;
  if (first) pending_losses_ = PendingLosses{{}, clock_.now() + kLossWindow};
  const std::string node = node_of(loss.who);
  const bool new_node = std::none_of(pending_losses_->losses.begin(), pending_losses_->losses.end(),
                                     [&](const Loss& other) { return node_of(other.who) == node; });
  pending_losses_->losses.push_back(std::move(loss));
  if (!new_node) return;
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
    const int other = static_cast<int>(rank);
    if (present(peers_[rank]) && !is_lost(other) && node_of(peers_[rank].who) == node) {
      ask(other);
    }
  }
}

bool Hub::is_lost(int rank) const {
  return std::any_of(losses_.begin(), losses_.end(),
                     [rank](const Loss& loss) { return loss.rank == rank; });
}

void Hub::announce_losses() {
  if (!pending_losses_) return;
  if (clock_.now() < pending_losses_->until &&
      std::any_of(peers_.begin(), peers_.end(), [](const Peer& m) { return m.asked; })) {
    return;
  }
  const auto losses = std::exchange(pending_losses_, std::nullopt)->losses;
  std::string text = describe(losses, options_.liveness.silence);
  for (const auto& loss : losses) stop_awaiting(peer(loss.rank));
  const Loss& first = losses.front();
  if (first.kind != LossKind::killed && !last_slow_wait_.empty()) text += "; " + last_slow_wait_;
  announce({.rank = first.rank, .text = text, .lost = true, .kind = kind_of(first.kind)});
}

void Hub::process_failures() {
  if (reported_ || pending_losses_) return;
  const auto failure = failures_.failure();
  if (!failure) return;
  if (failure->symptom == Symptom::none) {
    announce(*failure);
  } else {
    begin_diagnosis(*failure);
  }
}

void Hub::begin_diagnosis(Failure report) {
  if (reported_ || pending_losses_) return;
  if (diagnosis_) {
    // A failure must lead to a verdict even if a slow wait started the diagnosis. A remote error
    // may be the consequence of an abort after a long wait.
    if (weight(report.symptom) <= weight(diagnosis_->report.symptom)) return;
    if (report.symptom == Symptom::remote_error) diagnosis_->until = clock_.now() + kAnswerWithin;
    diagnosis_->report = std::move(report);
    return;
  }
  diagnosis_ = Diagnosis{std::move(report), clock_.now() + kAnswerWithin};
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) ask(static_cast<int>(rank));
}

void Hub::diagnose_hang() {
  if (!diagnosis_ || reported_ || pending_losses_) return;
  const bool more_may_come =
      diagnosis_->report.symptom == Symptom::remote_error ||
      std::any_of(peers_.begin(), peers_.end(), [](const Peer& m) { return m.asked; });
  if (more_may_come && clock_.now() < diagnosis_->until) return;
  const auto diagnosis = *std::exchange(diagnosis_, std::nullopt);
  if (diagnosis.report.symptom != Symptom::none)
    return announce(find_cause(statuses(), diagnosis.report));
  if (const auto failure = find_disagreement(statuses())) announce(*failure);
}

// Reports the failure to all ranks. No later failure can become the cause.
void Hub::announce(const Failure& failure) {
  reported_ = failure;
  diagnosis_.reset();
  if (!options_.dump.empty()) plan_dump();
  set_verdict(failure);
  if (failure.kind == FailureKind::silent && failure.rank > 0) stop_awaiting(peer(failure.rank));
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
    send(static_cast<int>(rank), verdict_message());
  }
  reception_.tell_the_welcomed(verdict_message());
  failures_.fail(failure);
  if (failure.rank != 0) report_if_lost(failure);
}

Message Hub::verdict_message() const {
  const auto kind = reported_->lost             ? MessageKind::loss
                    : reported_->is_usage_error ? MessageKind::usage_error
                                                : MessageKind::failure;
  return {kind, reported_->rank, reported_->text};
}

std::vector<RankStatus> Hub::statuses() const {
  std::vector<RankStatus> all{{0, process_name(), recorder_.snapshot()}};
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
    const Peer& m = peers_[rank];
    if (m.joined) all.push_back({static_cast<int>(rank), m.who, m.account});
  }
  return all;
}

// Called before the main thread learns of the failure. Otherwise it could end the job, and with it
// this process, before the record is written.
void Hub::plan_dump() {
  dump_at_ = clock_.now() + kDumpAfter;
  const std::lock_guard lock(mutex_);
  record_is_due_ = true;
}

// Does not report that the dump cannot be written, because the failure itself is more important.
void Hub::write_dump() {
  dump_at_.reset();
  try {
    write_file(options_.dump, as_text(failure_record(statuses(), *reported_, losses_), 1) + "\n");
  } catch (const std::exception&) {
  }
  {
    const std::lock_guard lock(mutex_);
    record_is_due_ = false;
  }
  changed_.notify_all();
}

}  // namespace ddp::comm
