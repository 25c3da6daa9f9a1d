// The end of the error channel of every rank but 0: one connection to the hub.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/diagnosis/flight_recorder.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/reconnector.h"

namespace ddp::comm {

class Spoke final : public ChannelEnd {
 public:
  struct Who {
    int rank = 0;     // this rank
    Key key{};        // of the channel, to connect again
    std::string hub;  // who rank 0 is, in case it ends without a word
    // Where rank 0 listens, beside the other end of the connection.
    std::vector<Connection::Endpoint> addresses = {};
  };
  // `recorder` is this rank's, for the hub's questions; it must outlive the object. `connection`
  // has been welcomed.
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

  // Of the thread alone:
  Connection connection_;
  Reconnector reconnector_;
  RunningClock::TimePoint heard_;
  bool reported_ = false;  // this rank's own failure
  bool over_ = false;      // the hub is gone

  std::thread thread_;
};

}  // namespace ddp::comm
