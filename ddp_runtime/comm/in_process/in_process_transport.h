// SPDX-License-Identifier: Apache-2.0
// A transport for ranks that are threads of one process: messages are copied from one thread's
// memory to another's. It serves tests, which then run in milliseconds and under ThreadSanitizer,
// and a world of one rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/transport.h"

namespace ddp::comm {

// Returns one transport for each of `ranks` threads, all connected with each other. Their shared
// state lives as long as any of them. `node_of(rank)` lets tests pretend that the ranks are on
// several machines; without it they are on one.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(
    int ranks, const std::function<int(int rank)>& node_of = {});

// Connects the same threads repeatedly: the n-th call on each rank returns the transport that is
// connected to the n-th transports of the other ranks. Thread-safe.
class InProcessNetwork {
 public:
  explicit InProcessNetwork(int ranks, std::function<int(int rank)> node_of = {})
      : ranks_(ranks), node_of_(std::move(node_of)), calls_(static_cast<std::size_t>(ranks)) {}

  std::unique_ptr<Transport> connect(int rank);

 private:
  int ranks_;
  std::function<int(int rank)> node_of_;
  std::mutex mutex_;
  std::vector<std::size_t> calls_;                                  // by rank
  std::vector<std::vector<std::unique_ptr<Transport>>> unclaimed_;  // by call, by rank
};

}  // namespace ddp::comm
