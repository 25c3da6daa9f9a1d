// SPDX-License-Identifier: Apache-2.0
// The end of the error channel on every rank except 0: one connection to the hub.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "base/channel/connection.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/reconnector.h"
#include "ddp_runtime/comm/group/flight_recorder.h"

namespace ddp::comm {

class Spoke final : public ChannelEnd {
 public:
  struct Who {
    int rank = 0;     // this rank
    Key key{};        // the channel's key, to reconnect
    std::string hub;  // description of rank 0, in case it exits without a goodbye
    // Other addresses of rank 0, besides the one that the connection uses.
    std::vector<Connection::Endpoint> addresses = {};
  };
  // `recorder` is this rank's own, used to answer the hub's status requests; it must outlive the
  // object. `connection` has been accepted by the hub.
  Spoke(FailureState& failures, const FlightRecorder& recorder, Connection connection, Who who,
        ChannelOptions options = {});
  ~Spoke() override;

 private:
  void listen() noexcept;
  void turn();
  void send_failure();
  void send_slow_wait();
  void send_status();
  void handle_hub_messages();
  void act_on(const Message& message);
  void check_liveness();
  void use(Connection fresh);
  void lose_hub(const Failure& failure);

  const FlightRecorder& recorder_;
  Who who_;

  // Used only by the thread:
  Connection connection_;
  Reconnector reconnector_;
  RunningClock::TimePoint heard_;
  bool reported_ = false;  // this rank's own failure has been sent
  bool over_ = false;      // the hub is gone

  std::thread thread_;
};

}  // namespace ddp::comm
