// The end of the error channel of every rank but 0: one connection to the hub.
#pragma once

#include <string>
#include <thread>

#include "ddp_runtime/comm/diagnosis/activity.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"

namespace ddp::comm {

class Spoke final : public ChannelEnd {
 public:
  // `hub` says who rank 0 is, in case it ends without a word.
  // `activity` is this rank's, for the hub's questions; it must outlive the object.
  Spoke(FailureState& failures, const ActivityLog& activity, Connection connection, int rank,
        std::string hub);
  ~Spoke() override;

 private:
  void listen();
  void tell_failure();
  void tell_suspicion();
  void tell_account();
  bool hear_hub();  // false: rank 0 is gone
  void act_on(const Message& message);

  const ActivityLog& activity_;

  Connection connection_;
  int rank_;
  std::string hub_;
  bool told_ = false;  // of the thread alone: this rank's own failure
  std::thread thread_;
};

}  // namespace ddp::comm
