// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/messages.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "ddp_runtime/comm/group/awaited_work.h"
#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {
namespace {

constexpr int kMessageTag = 32767;  // the largest tag that MPI guarantees

}  // namespace

struct Messages::UnderWay {
  UnderWay(MessageRequest r, Transport& transport, FailureState& failures, const LinkLimits& limits)
      : request(std::move(r)),
        flight(transport, request.data.size(), limits.segment_bytes, limits.window),
        timer(failures, limits.timeout, limits.report_after) {}

  MessageRequest request;
  Flight flight;
  WaitTimer timer;
  std::optional<FlightRecorder::Handle> record;  // set when the message is in flight
};

Messages::Messages(Transport& transport, FailureState& failures, const LinkLimits& limits,
                   std::shared_ptr<FlightRecorder> recorder, std::string channel)
    : transport_(transport),
      failures_(failures),
      limits_(limits),
      recorder_(std::move(recorder)),
      channel_(std::move(channel)) {}

Messages::~Messages() = default;

void Messages::post(MessageRequest request) {
  auto& queue = queues_[{request.direction, request.peer}];
  queue.push_back(std::make_unique<UnderWay>(std::move(request), transport_, failures_, limits_));
}

bool Messages::awaited() const {
  for (const auto& [place, queue] : queues_) {
    for (const auto& message : queue) {
      if (is_awaited(*message->request.state)) return true;
    }
  }
  return false;
}

bool Messages::outgoing() const {
  return !queues_.empty() && queues_.begin()->first.first == Direction::outgoing;
}

bool Messages::progress() noexcept {
  bool moved = false;
  for (auto entry = queues_.begin(); entry != queues_.end();) {
    moved |= step(entry->second);
    entry = entry->second.empty() ? queues_.erase(entry) : std::next(entry);
  }
  return moved;
}

// Only the first message of a queue is in flight, because segments of the next message would be
// taken for segments of the first.
bool Messages::step(Queue& queue) noexcept {
  UnderWay& message = *queue.front();
  std::exception_ptr error;
  bool moved = false;
  try {
    if (!message.record) start(message);
    moved = move(message);
    if (!message.flight.complete()) return moved;
  } catch (const PeerFailure&) {
    error = std::current_exception();
  } catch (const BrokenCollective& e) {
    error = std::current_exception();
    failures_.fail({.rank = world_rank(), .text = e.what(), .symptom = e.symptom()});
  } catch (const std::exception& e) {
    error = std::current_exception();
    failures_.fail({world_rank(), e.what()});
  }
  finish(queue, error);
  return true;
}

void Messages::start(UnderWay& message) {
  const auto& request = message.request;
  const bool outgoing = request.direction == Direction::outgoing;
  Work::begin(*request.state);
  message.timer.begin();
  message.record = recorder_->begin(std::nullopt, request.what, request.signature,
                                    fmt::format("{} {} rank {}", channel_, outgoing ? "to" : "from",
                                                transport_.world_rank(request.peer)));
}

bool Messages::move(UnderWay& message) {
  const auto& [direction, peer, data, what, signature, keep, state] = message.request;
  const auto post = [&, d = direction, p = peer, bytes = data](std::size_t offset,
                                                               std::size_t length) {
    const auto piece = bytes.subspan(offset, length);
    return d == Direction::outgoing ? transport_.post_send(piece, p, kMessageTag)
                                    : transport_.post_receive(piece, p, kMessageTag);
  };
  bool moved = message.flight.post_up_to(data.size(), post);
  moved |= message.flight.retire([](std::size_t, std::size_t) {});
  if (moved) {
    message.timer.moved();
  } else if (!message.flight.complete()) {
    message.timer.check([this, &message](std::chrono::milliseconds waited) {
      return fmt::format("rank {} waited {:.0f} s in {} for rank {}", world_rank(),
                         std::chrono::duration<double>(waited).count(), message.request.what,
                         transport_.world_rank(message.request.peer));
    });
  }
  return moved;
}

void Messages::finish(Queue& queue, const std::exception_ptr& error) {
  const auto state = queue.front()->request.state;
  if (const auto record = queue.front()->record) recorder_->end(*record, error != nullptr);
  queue.pop_front();  // abandons its segments before the waiting caller may free the memory
  Work::finish(*state, error);
}

}  // namespace ddp::comm
