// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, each with a GPU of the fake.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/device/nccl_group.h"
#include "ddp_runtime/comm/in_process/in_process_transport.h"
#include "ddp_runtime/comm/p2p_group.h"
#include "ddp_runtime/comm/peer_failure.h"
#include "tests/unit/comm/device/gpu_kernels.h"

namespace ddp::comm::test {

struct GpuRank {
  int rank;
  Group& group;  // of GPUs
  Group& host;   // on which it is built
  FailureState& failures;
  const TestStream& stream;
};

inline NcclOptions quick_options() {
  NcclOptions options;
  options.cuda_library = SLURM_DDP_FAKE_GPU;
  options.nccl_library = SLURM_DDP_FAKE_GPU;
  options.watch_interval = std::chrono::milliseconds(1);
  options.arena_bytes = 1 << 20;
  options.node = "node1";
  return options;
}

// Returns each rank's error; empty if it had none. As in a real job, the first error ends all
// ranks. `change` adjusts the options of a rank.
inline std::vector<std::string> run_gpu_ranks(
    int ranks, const std::function<void(GpuRank)>& body,
    const std::function<void(int rank, NcclOptions&)>& change = {}) {
  FailureState failures;
  InProcessNetwork network(ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  const auto run = [&](int rank) {
    const auto connect = [&network, rank] { return network.connect(rank); };
    NcclOptions options = quick_options();
    options.device = rank;
    if (change) change(rank, options);
    device_calls().set_device(rank);
    const auto fail = [&](const std::exception& e) {
      errors[static_cast<std::size_t>(rank)] = e.what();
      failures.fail({rank, e.what()});
    };
    try {
      P2pGroup host(connect(), failures, {}, connect);
      try {
        NcclGroup group(host, failures, options);
        try {
          const TestStream stream;
          body({rank, group, host, failures, stream});
          stream.finish();
        } catch (const std::exception& e) {
          fail(e);  // before the group is destroyed, because peers may be waiting for this rank
        }
      } catch (const std::exception& e) {
        fail(e);
      }
    } catch (const std::exception& e) {
      fail(e);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace ddp::comm::test
