#include "ddp_runtime/comm/failure/hub.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {
namespace {

// Strangers may connect to any port; only so many may sit there without having said hello.
constexpr std::size_t kMostStrangers = 64;

}  // namespace

Hub::Hub(FailureState& failures, Listener listener, std::string token, int ranks)
    : ChannelEnd(failures),
      listener_(std::move(listener)),
      token_(std::move(token)),
      expected_(static_cast<std::size_t>(ranks - 1)),
      thread_([this] { serve(); }) {
  failures_.on_first_failure([this](const Failure& failure) {
    set_verdict(failure);
    alarm_.ring();
  });
}

Hub::~Hub() {
  if (!failures_.failed()) others_gone(std::chrono::seconds(5));
  failures_.on_first_failure({});
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
  bool told = false;
  while (true) {
    wait_for_events();
    std::erase_if(spokes_, [this](Spoke& spoke) { return !hear(spoke); });
    const auto failure = failures_.failure();
    if (failure && !told) {
      for (auto& spoke : spokes_) {
        spoke.connection.send({MessageKind::failure, failure->rank, failure->text});
      }
      told = true;
    }
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
  }
}

void Hub::wait_for_events() {
  std::vector<pollfd> entries{{alarm_.fd(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
  for (const auto& spoke : spokes_) entries.push_back({spoke.connection.fd(), POLLIN, 0});
  poll(entries.data(), entries.size(), -1);
  alarm_.clear();
  if ((entries[1].revents & POLLIN) != 0) accept_spoke();
}

void Hub::accept_spoke() {
  FileDescriptor socket(
      accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && spokes_.size() < expected_ + kMostStrangers) {
    spokes_.push_back({Connection(std::move(socket)), -1, {}});
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
    failures_.fail(ended_without_a_word(spoke.rank, spoke.who));
    count_gone();
  }
  return false;
}

bool Hub::act_on(Spoke& spoke, const Message& message) {
  if (spoke.rank < 0) return welcome(spoke, message);
  if (message.kind == MessageKind::failure) failures_.fail({spoke.rank, message.text});
  if (message.kind != MessageKind::goodbye) return true;
  count_gone();
  return false;
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

}  // namespace ddp::comm
