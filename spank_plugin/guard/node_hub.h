// SPDX-License-Identifier: Apache-2.0
// The port on rank 0's node at which the guards of the other nodes report their ranks. Only
// processes that have the step's key can (base/channel/reception.h).
//
// The hub sends its nodes a number every second, and a report repeats the last one that its node
// got. So the hub knows how old a report can be, however long it was on its way.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/channel/connection.h"
#include "base/channel/event_queue.h"
#include "base/channel/reception.h"
#include "base/channel/running_clock.h"
#include "base/deadline.h"
#include "base/secret/key.h"
#include "base/socket.h"
#include "spank_plugin/guard/step_end.h"
#include "spank_plugin/watch/node_report.h"

namespace ddp::guard {

class NodeHub {
 public:
  // Events of `waker` end a turn. At most `nodes` other nodes may report.
  NodeHub(Listener listener, const Key& key, std::uint32_t nodes, int waker);
  NodeHub(const NodeHub&) = delete;
  NodeHub& operator=(const NodeHub&) = delete;

  // Waits for events for a second at most, and handles them. On one thread; the other functions may
  // be called on another one meanwhile.
  void turn();
  // Asks all nodes where their ranks stand.
  void ask();
  void end_step(const StepEnd& end);
  std::optional<StepEnd> step_end() const;
  // Whether the guards of all ranks know that the step ends, or need not. `ranks`: on other nodes.
  bool has_told(std::uint32_t ranks) const;
  // See NodeLink::others().
  watch::RanksReport ranks(Clock::time_point now) const;

 private:
  struct Node {
    std::string name;
    Connection connection;
    watch::RanksReport report;
    std::optional<Clock::time_point> made_after;  // the report was
    std::optional<Clock::time_point> over_since;  // it is the last one: no rank runs any more
    bool knows_end = false;                       // of the step
  };

  bool may_join(int node) const;
  void join(Reception::Arrival arrival);
  void hear(Node& node);
  void take(Node& node, const Message& message);
  void take_end(const StepEnd& end);
  void tell_end();
  void send_number();

  static constexpr std::uint64_t kWakeEvent = std::uint64_t{1} << 31U;
  static constexpr std::uint32_t kNumbers = 32;

  std::uint32_t most_nodes_;
  EventQueue events_;
  Reception reception_;
  RunningClock clock_;
  mutable std::mutex mutex_;   // guards what follows, except while turn() waits
  std::map<int, Node> nodes_;  // by the rank of each one's first task
  std::optional<StepEnd> end_;
  std::uint32_t number_ = 0;                      // the last that was sent, from 1 on
  std::array<Clock::time_point, kNumbers> sent_;  // when, by its remainder
};

}  // namespace ddp::guard
