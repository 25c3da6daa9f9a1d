// SPDX-License-Identifier: Apache-2.0
// Compares the order of launches between neighbors on a ring of a group's ranks; see
// Note [One order per device]. If all neighbors agree, all ranks do.
#pragma once

#include <memory>
#include <optional>

#include "ddp_runtime/comm/device/launch_log.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/transport/point_to_point_channel.h"

namespace ddp::comm {

// Used by one thread.
class OrderExchange {
 public:
  // `channel`, of `group`, and `log` must outlive the object.
  OrderExchange(PointToPointChannel& channel, const LaunchLog& log, const Group& group);
  OrderExchange(const OrderExchange&) = delete;
  OrderExchange& operator=(const OrderExchange&) = delete;
  ~OrderExchange();

  // Sends what is new and compares what has arrived. Never blocks. Throws RuntimeError with both
  // orders if they differ. `last`: there will be no more launches.
  void step(bool last);
  // Whether both neighbors have got all. No further step is needed then.
  bool over() const noexcept;

 private:
  void receive();
  void send(bool last);

  PointToPointChannel& channel_;
  const LaunchLog& log_;
  int rank_;
  int size_;
  LaunchLog::Ranks ranks_;
  struct Frames {
    LaunchFrame outgoing{};
    LaunchFrame incoming{};
  };
  std::shared_ptr<Frames> frames_;       // messages may still arrive after a failure
  std::optional<LaunchFrame> previous_;  // the previous rank's latest, not yet compared in full
  std::optional<Ticket> sending_;
  std::optional<Ticket> receiving_;
  std::uint64_t sent_ = 0;  // launches in the last frame
  bool sent_last_ = false;
  bool received_last_ = false;
};

}  // namespace ddp::comm
