// SPDX-License-Identifier: Apache-2.0
// The thread that runs a rank's server: it answers the workers of all ranks for this rank's shard,
// and carries this rank's own exchanges to the other servers. Only this thread accesses the shard
// and the network, so neither needs a lock.
//
// Note [One answer at a time]
// A worker's push and its next read are one request. So when the last gradient of a step arrives,
// all workers waiting for it have already sent their requests. The server answers them from the
// same values, before any of them can push again.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/failure/state/wait_timer.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/comm/transport/point_to_point_channel.h"
#include "ddp_runtime/parameter_server/exchange.h"
#include "ddp_runtime/parameter_server/messages.h"
#include "ddp_runtime/parameter_server/shard.h"

namespace ddp::parameter_server {

class Service {
 public:
  // `length`: size of every rank's shard in elements. The slot and the channel's group must outlive
  // this object.
  Service(comm::PointToPointChannel& line, Shard shard, std::size_t length, RequestSlot& slot);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  // Stops immediately: after shutdown messages no rank needs this server, and without them the run
  // has failed anyway.
  ~Service();

 private:
  struct Client;
  struct Memory;

  void run();
  bool progress();
  void wait_for_news(int idle_calls);
  void check_time();
  std::string whom_we_wait_for() const;

  // Acting as a server.
  void listen_to(Client& client);
  bool serve(Client& client);
  void understand(Client& client);
  void push(Client& client);
  bool answer_whose_turn_it_is();
  void answer(Client& client);

  // Acting as a worker.
  bool take_exchange();
  void ask(Client& server);
  void push_to_own_shard();
  bool finish_exchange();

  bool arrived(std::vector<comm::Ticket>& tickets);
  bool finished() const;
  bool all_gone() const;
  int rank() const noexcept { return line_.transport->rank(); }

  comm::PointToPointChannel& line_;
  Shard shard_;
  std::size_t length_;
  RequestSlot& slot_;
  std::shared_ptr<Memory> memory_;  // all messages are sent from here and arrive here
  std::vector<Client>& clients_;    // the other ranks; in `memory_`
  std::optional<Exchange> own_;     // in flight
  bool own_answered_ = false;       // by this rank's own shard
  bool shut_down_ = false;
  comm::WaitTimer wait_timer_;  // for this rank's own exchange
  std::thread thread_;          // uses everything above
};

}  // namespace ddp::parameter_server
