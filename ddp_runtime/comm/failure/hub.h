// Rank 0's end of the error channel: accepts the others, listens to all of them, and passes the
// first failure to everyone.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"

namespace ddp::comm {

class Hub final : public ChannelEnd {
 public:
  Hub(FailureState& failures, Listener listener, std::string token, int ranks);
  // In a healthy world, waits a few seconds for the goodbyes of the others.
  ~Hub() override;

  bool others_gone(std::chrono::milliseconds patience) override;

 private:
  struct Spoke {
    Connection connection;
    int rank = -1;  // until it has said hello with the job's token
    std::string who;
  };

  void serve();
  void wait_for_events();
  void accept_spoke();
  bool hear(Spoke& spoke);                            // false: its connection is over
  bool act_on(Spoke& spoke, const Message& message);  // likewise
  bool welcome(Spoke& spoke, const Message& message);
  void count_gone();

  Listener listener_;
  std::string token_;
  std::size_t expected_;
  std::size_t gone_ = 0;
  std::vector<Spoke> spokes_;  // of the thread alone
  std::thread thread_;
};

}  // namespace ddp::comm
