#include "ddp_runtime/comm/failure/hub.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;

// Strangers may connect to any port; only so many may sit there without having said hello.
constexpr std::size_t kMostStrangers = 64;
// A living process answers within milliseconds, whatever its other threads do.
constexpr auto kAnswerWithin = 2s;
// After a failure, for the others' accounts of what they were doing.
constexpr auto kDumpAfter = 500ms;

int milliseconds_until(Clock::time_point when) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

}  // namespace

Hub::Hub(FailureState& failures, const ActivityLog& activity, Listener listener, std::string token,
         int ranks, std::string dump)
    : ChannelEnd(failures),
      activity_(activity),
      listener_(std::move(listener)),
      token_(std::move(token)),
      dump_(std::move(dump)),
      expected_(static_cast<std::size_t>(ranks - 1)),
      thread_([this] { serve(); }) {
  failures_.on_first_failure([this](const Failure& failure) {
    if (failure.symptom == Symptom::none) set_verdict(failure);
    alarm_.ring();
  });
  listen_for_suspicions();
}

Hub::~Hub() {
  if (!failures_.failed()) others_gone(5s);
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
  return changed_.wait_for(lock, patience, [this] { return gone_ >= expected_; });
}

void Hub::serve() {
  while (true) {
    wait_for_events();
    std::erase_if(spokes_, [this](Spoke& spoke) { return !hear(spoke); });
    if (const auto complaint = take_suspicion()) begin_inquest({.rank = 0, .text = *complaint});
    const auto failure = failures_.failure();
    if (failure && !told_) {
      if (failure->symptom == Symptom::none) {
        rule(*failure);
      } else {
        begin_inquest(*failure);
      }
    }
    conduct_inquest();
    const std::lock_guard lock(mutex_);
    if (dump_at_ && (leaving_ || gone_ >= expected_ || Clock::now() >= *dump_at_)) write_dump();
    if (leaving_) return;
  }
}

void Hub::wait_for_events() {
  std::vector<pollfd> entries{{alarm_.fd(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
  for (const auto& spoke : spokes_) entries.push_back({spoke.connection.fd(), POLLIN, 0});
  int patience = -1;
  if (inquest_) patience = milliseconds_until(inquest_->until);
  if (dump_at_) patience = milliseconds_until(*dump_at_);
  poll(entries.data(), entries.size(), patience);
  alarm_.clear();
  if ((entries[1].revents & POLLIN) != 0) accept_spoke();
}

void Hub::accept_spoke() {
  FileDescriptor socket(
      accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && spokes_.size() < expected_ + kMostStrangers) {
    spokes_.push_back({Connection(std::move(socket)), -1, {}, {}, false});
  }
}

bool Hub::hear(Spoke& spoke) {
  bool open = false;
  try {
    open = spoke.connection.fill();
    while (const auto message = spoke.connection.next()) {
      if (!act_on(spoke, *message)) return false;
    }
  } catch (const RuntimeError&) {
    open = false;  // not our protocol
  }
  if (open) return true;
  if (spoke.rank >= 0) {
    departed_.push_back({spoke.rank, spoke.who, spoke.account});
    failures_.fail(ended_without_a_word(spoke.rank, spoke.who));
    count_gone();
  }
  return false;
}

bool Hub::act_on(Spoke& spoke, const Message& message) {
  if (spoke.rank < 0) return welcome(spoke, message);
  switch (message.kind) {
    case MessageKind::failure:
      failures_.fail({.rank = spoke.rank, .text = message.text});
      return true;
    case MessageKind::mistake:
      failures_.fail({.rank = spoke.rank, .text = message.text, .users_mistake = true});
      return true;
    case MessageKind::broken:
      begin_inquest({.rank = spoke.rank, .text = message.text, .symptom = Symptom::wrong_length});
      return true;
    case MessageKind::timeout:
      begin_inquest({.rank = spoke.rank, .text = message.text, .symptom = Symptom::long_wait});
      return true;
    case MessageKind::suspicion:
      begin_inquest({.rank = spoke.rank, .text = message.text});
      return true;
    case MessageKind::account:
      spoke.account = activity_from_json(nlohmann::json::parse(message.text, nullptr, false));
      spoke.asked = false;
      return true;
    case MessageKind::goodbye:
      departed_.push_back({spoke.rank, spoke.who, spoke.account});
      count_gone();
      return false;
    default:
      return true;
  }
}

bool Hub::welcome(Spoke& spoke, const Message& message) {
  const std::size_t space = message.text.find(' ');
  if (message.kind != MessageKind::hello || space == std::string::npos ||
      message.text.substr(0, space) != token_) {
    return false;
  }
  spoke.rank = message.rank;
  spoke.who = message.text.substr(space + 1);
  return spoke.connection.send({MessageKind::welcome, 0, {}});
}

void Hub::count_gone() {
  {
    const std::lock_guard lock(mutex_);
    ++gone_;
  }
  changed_.notify_all();
}

void Hub::begin_inquest(Failure complaint) {
  if (told_) return;
  if (inquest_) {
    // A failure must end in a ruling even if the questions were asked for a suspicion.
    if (inquest_->complaint.symptom == Symptom::none) inquest_->complaint = std::move(complaint);
    return;
  }
  inquest_ = Inquest{std::move(complaint), Clock::now() + kAnswerWithin};
  for (auto& spoke : spokes_) {
    if (spoke.rank < 0) continue;
    spoke.account.reset();
    spoke.asked = spoke.connection.send({MessageKind::question, 0, {}});
  }
}

void Hub::conduct_inquest() {
  if (!inquest_ || told_) return;
  const bool all_answered =
      std::none_of(spokes_.begin(), spokes_.end(), [](const Spoke& s) { return s.asked; });
  if (!all_answered && Clock::now() < inquest_->until) return;
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
  if (!dump_.empty()) dump_at_ = Clock::now() + kDumpAfter;
  tell_everyone(failure);
  failures_.fail(failure);
}

void Hub::tell_everyone(const Failure& failure) {
  const auto kind = failure.lost            ? MessageKind::loss
                    : failure.users_mistake ? MessageKind::mistake
                                            : MessageKind::failure;
  for (auto& spoke : spokes_) spoke.connection.send({kind, failure.rank, failure.text});
}

std::vector<Witness> Hub::witnesses() const {
  std::vector<Witness> all = departed_;
  all.push_back({0, who_am_i(), activity_.snapshot()});
  for (const auto& spoke : spokes_) {
    if (spoke.rank >= 0) all.push_back({spoke.rank, spoke.who, spoke.account});
  }
  std::sort(all.begin(), all.end(),
            [](const Witness& a, const Witness& b) { return a.rank < b.rank; });
  return all;
}

// Whoever reads the dump wants it, but the failure itself is worth more than a complaint about it.
void Hub::write_dump() {
  dump_at_.reset();
  std::ofstream(dump_) << failure_record(witnesses(), *told_).dump(1) << '\n';
}

}  // namespace ddp::comm
