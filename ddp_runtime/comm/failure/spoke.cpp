#include "ddp_runtime/comm/failure/spoke.h"

#include <poll.h>

#include <array>
#include <utility>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {

Spoke::Spoke(FailureState& failures, Connection connection, int rank, std::string hub)
    : ChannelEnd(failures),
      connection_(std::move(connection)),
      rank_(rank),
      hub_(std::move(hub)),
      thread_([this] { listen(); }) {
  failures_.on_first_failure([this](const Failure&) { alarm_.ring(); });
}

Spoke::~Spoke() {
  failures_.on_first_failure({});
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  alarm_.ring();
  thread_.join();
}

void Spoke::listen() {
  bool reported = false;
  while (true) {
    std::array<pollfd, 2> entries{{{alarm_.fd(), POLLIN, 0}, {connection_.fd(), POLLIN, 0}}};
    poll(entries.data(), entries.size(), -1);
    alarm_.clear();
    const auto failure = failures_.failure();
    if (failure && failure->rank == rank_ && !reported) {
      connection_.send({MessageKind::failure, rank_, failure->text});
      reported = true;
    }
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) break;
    }
    if (!hear_hub()) return;
  }
  connection_.send({MessageKind::goodbye, rank_, {}});
}

bool Spoke::hear_hub() {
  bool open = false;
  try {
    open = connection_.fill();
    while (const auto message = connection_.next()) {
      if (message->kind != MessageKind::failure) continue;
      set_verdict({message->rank, message->text});
      failures_.fail({message->rank, message->text});
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
