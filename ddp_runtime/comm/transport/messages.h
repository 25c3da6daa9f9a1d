// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks that run in parallel with the collectives of a group. They are
// independent of each other, so two ranks may first send to each other and then receive. Only
// messages in the same direction between the same two ranks arrive in the order in which they were
// sent.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/failure/state/wait_timer.h"
#include "ddp_runtime/comm/group/flight_recorder.h"
#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/comm/transport/flight.h"
#include "ddp_runtime/comm/transport/link.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

enum class Direction : std::uint8_t { outgoing, incoming };

struct MessageRequest {
  Direction direction = Direction::outgoing;
  int peer = 0;
  std::span<std::byte> data;
  std::string what;                  // "send (activations)"
  std::string signature;             // see OperationRecord
  std::shared_ptr<const void> keep;  // held until the message is done
  std::shared_ptr<Work::State> state;
};

// Used only by the communication thread.
class Messages {
 public:
  // `channel`: name of the group's channel, for the records in `recorder`.
  Messages(Transport& transport, FailureState& failures, const LinkLimits& limits,
           std::shared_ptr<FlightRecorder> recorder, std::string channel);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages();

  bool empty() const noexcept { return queues_.empty(); }
  // Whether a thread of this rank waits for one of them.
  bool awaited() const;
  bool outgoing() const;
  void post(MessageRequest request);
  // Returns whether any message made progress. Completes the work of a failed message with its
  // error; never throws.
  bool progress() noexcept;

 private:
  struct UnderWay;
  using Queue = std::deque<std::unique_ptr<UnderWay>>;

  int world_rank() const noexcept { return transport_.world_rank(transport_.rank()); }
  void start(UnderWay& message);
  bool move(UnderWay& message);  // throws if the message fails
  bool step(Queue& queue) noexcept;
  void finish(Queue& queue, const std::exception_ptr& error);

  Transport& transport_;
  FailureState& failures_;
  LinkLimits limits_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::string channel_;
  std::map<std::pair<Direction, int>, Queue> queues_;  // by direction and peer; no queue is empty
};

}  // namespace ddp::comm
