// The end of the error channel of every rank but 0: one connection to the hub.
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "ddp_runtime/comm/diagnosis/activity.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"

namespace ddp::comm {

// How a rank introduces itself.
Message hello(int rank, const std::string& token);

class Spoke final : public ChannelEnd {
 public:
  struct Who {
    int rank = 0;       // this rank
    std::string token;  // of the job, to connect again
    std::string hub;    // who rank 0 is, in case it ends without a word
  };
  // `activity` is this rank's, for the hub's questions; it must outlive the object. `connection`
  // has been welcomed.
  Spoke(FailureState& failures, const ActivityLog& activity, Connection connection, Who who,
        ChannelOptions options = {});
  ~Spoke() override;

 private:
  void listen() noexcept;
  void turn();
  void tell_failure();
  void tell_suspicion();
  void tell_account();
  void hear_hub();
  void act_on(const Message& message);
  void judge_silence();
  void connect_again();
  void use_fresh_connection();
  void lose_hub(const Failure& failure);

  const ActivityLog& activity_;
  Who who_;

  // Of the thread alone:
  Connection connection_;
  std::optional<Connection::Endpoint> endpoint_;  // of the hub
  std::optional<Connection> fresh_;               // not yet welcomed
  RunningClock::TimePoint fresh_since_;
  RunningClock::TimePoint heard_;
  bool told_ = false;  // this rank's own failure
  bool over_ = false;  // the hub is gone

  std::thread thread_;
};

}  // namespace ddp::comm
