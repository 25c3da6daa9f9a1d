// The end of the error channel of every rank but 0: one connection to the hub.
#pragma once

#include <string>
#include <thread>

#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"

namespace ddp::comm {

class Spoke final : public ChannelEnd {
 public:
  // `hub` says who rank 0 is, in case it ends without a word.
  Spoke(FailureState& failures, Connection connection, int rank, std::string hub);
  ~Spoke() override;

 private:
  void listen();
  bool hear_hub();  // false: rank 0 is gone

  Connection connection_;
  int rank_;
  std::string hub_;
  std::thread thread_;
};

}  // namespace ddp::comm
