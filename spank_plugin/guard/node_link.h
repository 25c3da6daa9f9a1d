// SPDX-License-Identifier: Apache-2.0
// Connects the guards of the nodes of a step: one guard of each node reports its node's ranks to
// one on rank 0's node, the hub, which then knows the whole step. No function but the destructor
// waits for another node.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "spank_plugin/guard/guard_options.h"
#include "spank_plugin/guard/step_end.h"
#include "spank_plugin/watch/node_report.h"

namespace ddp::guard {

class NodeLink {
 public:
  NodeLink() = default;
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;
  // After finish(), takes less than a second, or three if it is urgent.
  virtual ~NodeLink() = default;

  virtual bool is_hub() const noexcept = 0;
  // The last words of this guard. After those of the last one of a node, none of its ranks runs any
  // more; they are urgent if other nodes do not know that the step ends.
  enum class LastWords { of_one, of_last, of_last_urgent };
  virtual void finish(const watch::RanksReport& ranks, LastWords kind) = 0;

  // Tells all nodes that the step ends. Nothing if that is known. Of several decisions the soonest
  // counts.
  virtual void end_step(const StepEnd& end) = 0;
  // What other nodes or this one have told.
  virtual std::optional<StepEnd> step_end() const = 0;
  // Whether they all know it; on another node than the hub's, whether the hub does.
  virtual bool is_step_end_told() const = 0;

  // On the hub's node. Returns the ranks of the other nodes of which it is known what they do: they
  // may be fewer than the step has.
  virtual watch::RanksReport others(Clock::time_point now) const = 0;
  // Asks all nodes where their ranks stand.
  virtual void ask() = 0;

  // On the other nodes.
  virtual void publish(const watch::RanksReport& ranks) = 0;
  // Whether something was heard from the hub just now.
  virtual bool is_connected() const noexcept = 0;
  // Whether the hub has asked where the ranks stand, since the last call.
  virtual bool was_asked() noexcept = 0;
};

struct LinkOptions {
  HubPlace hub;
  std::string key = {};      // the step's, in hexadecimal digits
  std::uint32_t node = 0;    // rank of the node's first task; 0 on the hub's
  std::string name = {};     // of the node
  std::uint32_t others = 0;  // tasks of the step on other nodes
  // For urgent last words: a node may have started later, and looks for the hub every two seconds.
  std::chrono::milliseconds urgent_time{3'000};
};

// Returns null if the key is none. May throw std::exception.
using MakeLink = std::function<std::unique_ptr<NodeLink>(const LinkOptions& options)>;

}  // namespace ddp::guard
