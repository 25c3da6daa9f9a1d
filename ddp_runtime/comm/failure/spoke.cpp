#include "ddp_runtime/comm/failure/spoke.h"

#include <poll.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {
namespace {

MessageKind kind_of(const Failure& failure) {
  if (failure.users_mistake) return MessageKind::mistake;
  switch (failure.symptom) {
    case Symptom::long_wait:
      return MessageKind::timeout;
    case Symptom::wrong_length:
      return MessageKind::broken;
    case Symptom::none:
      break;
  }
  return MessageKind::failure;
}

}  // namespace

Spoke::Spoke(FailureState& failures, const ActivityLog& activity, Connection connection, int rank,
             std::string hub)
    : ChannelEnd(failures),
      activity_(activity),
      connection_(std::move(connection)),
      rank_(rank),
      hub_(std::move(hub)),
      thread_([this] { listen(); }) {
  failures_.on_first_failure([this](const Failure&) { alarm_.ring(); });
  listen_for_suspicions();
}

Spoke::~Spoke() {
  failures_.on_first_failure({});
  failures_.on_suspicion({});
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  alarm_.ring();
  thread_.join();
}

void Spoke::listen() {
  while (true) {
    std::array<pollfd, 2> entries{{{alarm_.fd(), POLLIN, 0}, {connection_.fd(), POLLIN, 0}}};
    poll(entries.data(), entries.size(), -1);
    alarm_.clear();
    tell_failure();
    tell_suspicion();
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) break;
    }
    if (!hear_hub()) return;
  }
  connection_.send({MessageKind::goodbye, rank_, {}});
}

void Spoke::tell_failure() {
  const auto failure = failures_.failure();
  if (told_ || !failure || failure->rank != rank_) return;
  told_ = true;
  connection_.send({kind_of(*failure), rank_, failure->text});
  tell_account();
}

void Spoke::tell_suspicion() {
  if (const auto complaint = take_suspicion()) {
    connection_.send({MessageKind::suspicion, rank_, *complaint});
  }
}

void Spoke::tell_account() {
  connection_.send({MessageKind::account, rank_, to_json(activity_.snapshot()).dump()});
}

void Spoke::act_on(const Message& message) {
  if (message.kind == MessageKind::question) return tell_account();
  const bool lost = message.kind == MessageKind::loss;
  const bool mistake = message.kind == MessageKind::mistake;
  if (message.kind != MessageKind::failure && !lost && !mistake) return;
  // Before this rank's own operations fail for it: what it was doing.
  tell_account();
  const Failure failure{
      .rank = message.rank, .text = message.text, .lost = lost, .users_mistake = mistake};
  set_verdict(failure);
  failures_.fail(failure);
}

bool Spoke::hear_hub() {
  bool open = false;
  try {
    open = connection_.fill();
    while (const auto message = connection_.next()) {
      act_on(*message);
    }
  } catch (const RuntimeError&) {
    open = false;  // not our protocol
  }
  if (open) return true;
  {
    const std::lock_guard lock(mutex_);
    hub_gone_ = true;
  }
  changed_.notify_all();
  failures_.fail(ended_without_a_word(0, hub_));
  return false;
}

}  // namespace ddp::comm
