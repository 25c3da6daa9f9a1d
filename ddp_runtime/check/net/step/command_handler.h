// SPDX-License-Identifier: Apache-2.0
// Executes the leader's commands on a task, on one thread: resolve names, exchange data with
// another task, start MPI and join its world or connect over TCP, run collectives, leave.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/secret/key.h"
#include "base/socket.h"
#include "ddp_runtime/check/net/measure/inject.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_pair.h"
#include "ddp_runtime/check/net/measure/path_probe.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/check/net/measure/write_bandwidth.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/transport/mpi/mpi_environment.h"
#include "ddp_runtime/comm/world.h"

namespace ddp::check {

// Seconds since 1970 by this node's clock, plus injected skew.
double unix_time(const Faults& faults);

struct TaskOptions {
  int rank = 0;
  int ranks = 1;
  std::string node;
  std::string leader;  // its address
  Key key{};           // the step's
  std::vector<Injection> injections;
  RdmaTool rdma;
  NcclTool nccl;
};

class CommandHandler {
 public:
  CommandHandler(Listener data, PathProbe probe, TaskOptions options);
  CommandHandler(const CommandHandler&) = delete;
  CommandHandler& operator=(const CommandHandler&) = delete;
  ~CommandHandler();

  // Returns the answer. Throws if the command fails: PeerFailure if another task caused the
  // failure.
  nlohmann::json execute(const nlohmann::json& command);

  // Whether the MPI world still exists. If so, MPI cannot be shut down in an orderly way.
  bool in_world() const noexcept { return in_world_.load(); }

 private:
  nlohmann::json resolve_names(const nlohmann::json& command) const;
  nlohmann::json probe_path(const nlohmann::json& command) const;
  nlohmann::json start_mpi();
  nlohmann::json join_world(const nlohmann::json& command);
  nlohmann::json listen_for_ranks();
  nlohmann::json connect_ranks(const nlohmann::json& command);
  nlohmann::json leave_world();
  nlohmann::json exchange_data(const ExchangeCommand& command);
  nlohmann::json measure_collective(const CollectiveCommand& command);
  comm::Group& group() const;

  Listener data_;
  PathProbe probe_;
  TaskOptions options_;
  Faults faults_;  // injected faults of this node with any peer
  std::atomic<bool> in_world_{false};
  bool failed_ = false;  // an exchange or a collective failed: no orderly shutdown of MPI
  std::unique_ptr<comm::MpiEnvironment> mpi_;
  std::unique_ptr<comm::World> world_;
  // Where no MPI connects the tasks:
  Listener ranks_port_;
  comm::FailureState failures_;
  std::unique_ptr<comm::Group> over_tcp_;
};

}  // namespace ddp::check
