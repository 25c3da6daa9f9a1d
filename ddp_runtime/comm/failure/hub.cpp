#include "ddp_runtime/comm/failure/hub.h"

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/output_file.h"
#include "ddp_runtime/comm/text.h"
#include "ddp_runtime/comm/thread_settings.h"

namespace ddp::comm {
namespace {

// A living process answers within milliseconds, whatever its other threads do.
constexpr auto kAnswerWithin = std::chrono::seconds(2);
// Ranks that die together are told together: so long the others of their node may take to say that
// they are well.
constexpr auto kMournFor = std::chrono::milliseconds(500);
// After a failure, for the others' accounts of what they were doing.
constexpr auto kDumpAfter = std::chrono::milliseconds(500);

// Keys of events: ranks count from 1, those of the reception come behind them.
constexpr std::uint64_t kAlarm = std::uint64_t{1} << 62;

// An answer that makes no sense is an answer: the rank is alive.
Activity account_in(const std::string& text) {
  try {
    return activity_from_json(nlohmann::json::parse(text, nullptr, false));
  } catch (const RuntimeError&) {
    Activity unreadable;
    unreadable.phase = "(its account cannot be read)";
    return unreadable;
  }
}

Message heartbeat(bool stalled) {
  return {MessageKind::alive, stalled ? 1 : 0, {}};
}

}  // namespace

Hub::Hub(FailureState& failures, const ActivityLog& activity, Listener listener, const Key& key,
         int ranks, ChannelOptions options)
    : ChannelEnd(failures, std::move(options)),
      activity_(activity),
      members_(static_cast<std::size_t>(ranks)),
      missing_(static_cast<std::size_t>(ranks - 1)),
      reception_(events_, std::move(listener), key,
                 {[this](int rank, const std::string& who) { return may_join(rank, who); },
                  [this](Reception::Arrival arrival) { join(std::move(arrival)); }}),
      awaited_(missing_) {
  events_.watch(alarm_.fd(), kAlarm);
  thread_ = std::thread([this] { serve(); });
  failures_.on_first_failure([this](const Failure&) { alarm_.ring(); });
  listen_for_suspicions();
}

Hub::~Hub() {
  if (!failures_.failed()) others_gone(std::chrono::seconds(5));
  failures_.on_first_failure({});
  failures_.on_suspicion({});
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  alarm_.ring();
  thread_.join();
}

bool Hub::others_gone(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return awaited_ == 0; });
  return gone_ + 1 >= members_.size();
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
      // Once more before the end, for a failure that came just before it.
      turn(over ? 0 : wait_milliseconds());
      const std::lock_guard lock(mutex_);
      if (dump_at_ && (leaving_ || awaited_ == 0 || clock_.now() >= *dump_at_)) write_dump();
    } catch (const std::exception& e) {
      failures_.fail({.rank = 0, .text = std::string("the error channel failed: ") + e.what()});
    }
  }
  for (auto& other : members_) {
    if (present(other)) other.connection.flush_within(std::chrono::milliseconds(100));
  }
}

void Hub::turn(int milliseconds) {
  const auto events = events_.wait(milliseconds);
  clock_.look();
  for (const auto& event : events) handle(event.data.u64);
  if (const auto complaint = take_suspicion()) {
    last_suspicion_ = *complaint;
    begin_inquest({.rank = 0, .text = *complaint});
  }
  conclude_mourning();
  rule_on_failures();
  conduct_inquest();
  if (!tick_is_due()) return;
  reception_.look_after(clock_.now(), expects_somebody());
  judge_silence();
  if (heartbeat_is_due()) send_heartbeats();
  end_if_stuck();
}

int Hub::wait_milliseconds() const {
  auto until = clock_.now() + tick();
  if (mourning_) until = std::min(until, mourning_->until);
  if (inquest_) until = std::min(until, inquest_->until);
  if (dump_at_) until = std::min(until, *dump_at_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_.now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

void Hub::handle(std::uint64_t key) {
  if (key == kAlarm) {
    alarm_.clear();
  } else if (key >= Reception::kFirstKey) {
    if (!reception_.handle(key, clock_.now(), missing_)) no_descriptors_left();
  } else {
    hear(static_cast<int>(key));
  }
}

// One that is missing, or the same process that has lost its connection and comes again.
bool Hub::may_join(int number, const std::string& who) const {
  if (number < 1 || static_cast<std::size_t>(number) >= members_.size()) return false;
  const Member& rank = members_[static_cast<std::size_t>(number)];
  return !rank.gone && (!rank.joined || rank.who == who);
}

// It has heard that it is welcome. Before, it may give this connection up and try another, which
// must not look like its death.
void Hub::join(Reception::Arrival arrival) {
  if (!may_join(arrival.rank, arrival.who)) return;
  Member& rank = member(arrival.rank);
  if (!std::exchange(rank.joined, true)) --missing_;
  rank.who = std::move(arrival.who);
  rank.heard = clock_.now();
  rank.sending = false;
  rank.asked = false;
  rank.connection = std::move(arrival.connection);  // closes the one it had
  events_.change(rank.connection.fd(), static_cast<std::uint64_t>(arrival.rank), false);
  if (told_) send(arrival.rank, verdict_message());
  if (!act_on(arrival.rank, arrival.first)) return leave(arrival.rank);
  hear(arrival.rank);
}

void Hub::no_descriptors_left() {
  if (missing_ == 0) return;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  failures_.fail(
      {.rank = 0,
       .text = "rank 0 has no file descriptor left for a connection with each other rank (" +
               std::to_string(missing_) + " of " + std::to_string(members_.size() - 1) +
               " are missing, the limit is " + std::to_string(limit.rlim_cur) +
               "); raise the limit of the nodes (ulimit -Hn)"});
}

// Nobody has business at the port when all ranks are in, until one has to connect again.
bool Hub::expects_somebody() const {
  return missing_ > 0 || std::any_of(members_.begin() + 1, members_.end(), [this](const Member& m) {
           return present(m) && (m.connection.state() != StreamState::open ||
                                 clock_.now() > m.heard + options_.liveness.reconnect / 2);
         });
}

void Hub::hear(int number) {
  Member& rank = member(number);
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
    rank.connection.close();  // until it comes again
  } else if (!open) {
    mourn({number, rank.who, LossKind::killed});
    leave(number);
  } else if (rank.sending != rank.connection.unsent()) {
    rank.sending = rank.connection.unsent();
    events_.change(rank.connection.fd(), static_cast<std::uint64_t>(number), rank.sending);
  }
}

bool Hub::act_on(int number, const Message& message) {
  Member& rank = member(number);
  switch (message.kind) {
    case MessageKind::failure:
    case MessageKind::mistake:
      // What other ranks say of their waits for those that are lost is not the cause.
      if (mourning_) return true;
      failures_.fail({.rank = number,
                      .text = message.text,
                      .users_mistake = message.kind == MessageKind::mistake});
      return true;
    case MessageKind::broken:
      begin_inquest({.rank = number, .text = message.text, .symptom = Symptom::wrong_length});
      return true;
    case MessageKind::timeout:
      begin_inquest({.rank = number, .text = message.text, .symptom = Symptom::long_wait});
      return true;
    case MessageKind::suspicion:
      rank.stalled = true;
      last_suspicion_ = message.text;
      begin_inquest({.rank = number, .text = message.text});
      return true;
    case MessageKind::alive:
      rank.stalled = message.rank != 0;
      return true;
    case MessageKind::account:
      rank.asked = false;
      rank.account = account_in(message.text);
      return true;
    case MessageKind::goodbye:
      return false;
    default:
      return true;
  }
}

void Hub::send(int number, const Message& message) {
  Member& rank = member(number);
  if (!present(rank) || !rank.connection) return;
  rank.connection.send(message);
  if (rank.connection.unsent() && !rank.sending) {
    rank.sending = true;
    events_.change(rank.connection.fd(), static_cast<std::uint64_t>(number), true);
  }
}

void Hub::ask(int number) {
  Member& rank = member(number);
  rank.account.reset();
  rank.asked = present(rank) && rank.connection;
  send(number, {MessageKind::question, 0, {}});
}

void Hub::leave(int number) {
  Member& rank = member(number);
  rank.gone = true;
  rank.asked = false;
  rank.connection.close();
  {
    const std::lock_guard lock(mutex_);
    ++gone_;
  }
  stop_awaiting(rank);
}

void Hub::stop_awaiting(Member& rank) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(rank.awaited, false)) --awaited_;
  }
  changed_.notify_all();
}

void Hub::send_heartbeats() {
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    // A connection that is stuck gets no more of them.
    if (!members_[rank].connection.unsent()) {
      send(static_cast<int>(rank), heartbeat(failures_.stalled()));
    }
  }
}

// Whether a rank that can be heard waits in vain.
bool Hub::stalled() const {
  const auto recently = clock_.now() - 3 * options_.liveness.heartbeat;
  return failures_.stalled() ||
         std::any_of(members_.begin() + 1, members_.end(), [&](const Member& m) {
           return present(m) && m.stalled && m.heard >= recently;
         });
}

void Hub::judge_silence() {
  if (told_ || mourning_) return;
  std::vector<SignsOfLife> signs;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const Member& m = members_[rank];
    const auto silent =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - m.heard);
    if (!present(m) || silent < options_.liveness.silence / 4) continue;
    signs.push_back({static_cast<int>(rank), m.who, silent,
                     m.connection && m.connection.acknowledged(options_.liveness.reconnect)});
  }
  if (signs.empty()) return;
  for (auto& loss : find_lost(signs, stalled(), options_.liveness)) mourn(std::move(loss));
}

// The others of its node are asked how they are: an answer or the end of their connection comes in
// milliseconds.
void Hub::mourn(Loss loss) {
  if (is_lost(loss.rank)) return;  // silent before, and its connection has closed now
  losses_.push_back(loss);
  if (told_) return;
  const bool first = !mourning_;
  if (first) mourning_ = Mourning{{}, clock_.now() + kMournFor};
  const std::string node = node_of(loss.who);
  const bool new_node = std::none_of(mourning_->losses.begin(), mourning_->losses.end(),
                                     [&](const Loss& other) { return node_of(other.who) == node; });
  mourning_->losses.push_back(std::move(loss));
  if (!new_node) return;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const int other = static_cast<int>(rank);
    if (present(members_[rank]) && !is_lost(other) && node_of(members_[rank].who) == node) {
      ask(other);
    }
  }
}

bool Hub::is_lost(int rank) const {
  return std::any_of(losses_.begin(), losses_.end(),
                     [rank](const Loss& loss) { return loss.rank == rank; });
}

void Hub::conclude_mourning() {
  if (!mourning_) return;
  if (clock_.now() < mourning_->until &&
      std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.asked; })) {
    return;
  }
  const auto losses = std::exchange(mourning_, std::nullopt)->losses;
  std::string text = describe(losses, options_.liveness.silence);
  for (const auto& loss : losses) stop_awaiting(member(loss.rank));
  const Loss& first = losses.front();
  if (first.kind != LossKind::killed && !last_suspicion_.empty()) text += "; " + last_suspicion_;
  rule({.rank = first.rank, .text = text, .lost = true, .kind = kind_of(first.kind)});
}

void Hub::rule_on_failures() {
  if (told_ || mourning_) return;
  const auto failure = failures_.failure();
  if (!failure) return;
  if (failure->symptom == Symptom::none) {
    rule(*failure);
  } else {
    begin_inquest(*failure);
  }
}

void Hub::begin_inquest(Failure complaint) {
  if (told_ || mourning_) return;
  if (inquest_) {
    // A failure must end in a ruling even if the questions were asked for a suspicion.
    if (inquest_->complaint.symptom == Symptom::none) inquest_->complaint = std::move(complaint);
    return;
  }
  inquest_ = Inquest{std::move(complaint), clock_.now() + kAnswerWithin};
  for (std::size_t rank = 1; rank < members_.size(); ++rank) ask(static_cast<int>(rank));
}

void Hub::conduct_inquest() {
  if (!inquest_ || told_ || mourning_) return;
  if (clock_.now() < inquest_->until &&
      std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.asked; })) {
    return;
  }
  const auto inquest = *std::exchange(inquest_, std::nullopt);
  if (inquest.complaint.symptom != Symptom::none)
    return rule(find_cause(witnesses(), inquest.complaint));
  if (const auto failure = find_disagreement(witnesses())) rule(*failure);
}

// What everybody is told; from here on nothing else is the cause.
void Hub::rule(const Failure& failure) {
  told_ = failure;
  inquest_.reset();
  set_verdict(failure);
  if (failure.kind == FailureKind::silent && failure.rank > 0) stop_awaiting(member(failure.rank));
  if (!options_.dump.empty()) dump_at_ = clock_.now() + kDumpAfter;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    send(static_cast<int>(rank), verdict_message());
  }
  reception_.tell_the_welcomed(verdict_message());
  failures_.fail(failure);
}

Message Hub::verdict_message() const {
  const auto kind = told_->lost            ? MessageKind::loss
                    : told_->users_mistake ? MessageKind::mistake
                                           : MessageKind::failure;
  return {kind, told_->rank, told_->text};
}

std::vector<Witness> Hub::witnesses() const {
  std::vector<Witness> all{{0, who_am_i(), activity_.snapshot()}};
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const Member& m = members_[rank];
    if (m.joined) all.push_back({static_cast<int>(rank), m.who, m.account});
  }
  return all;
}

// Whoever reads the dump wants it, but the failure itself is worth more than a complaint about it.
void Hub::write_dump() {
  dump_at_.reset();
  try {
    write_file(options_.dump, as_text(failure_record(witnesses(), *told_, losses_), 1) + "\n");
  } catch (const RuntimeError&) {
  }
}

}  // namespace ddp::comm
