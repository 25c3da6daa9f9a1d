// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, each with a GPU of the fake.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/device/nccl_group.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"
#include "tests/unit/comm/device/gpu_kernels.h"

namespace ddp::comm::test {

struct GpuRank {
  int rank;
  Group& group;  // of GPUs
  Group& host;   // on which it is built
  FailureState& failures;
  const TestStream& stream;
  Memory memory = Memory::device;  // that the group communicates
};

// Numbers of a rank in memory that its group communicates. `T` has the size of the type.
template <class T = float>
class Numbers {
 public:
  Numbers(const GpuRank& r, std::size_t count, ElementType type = element_type_of<T>())
      : Numbers(r, own_memory(r, count * sizeof(T)), count, type) {}
  Numbers(const GpuRank& r, std::shared_ptr<std::byte> where, std::size_t count,
          ElementType type = element_type_of<T>())
      : memory(std::move(where)),
        buffer{memory.get(), count, type, r.memory, r.stream.get()},
        stream_(&r.stream) {}

  void put(std::vector<T> values) const { write(buffer, std::move(values)); }
  void fill(T value) const { put(std::vector<T>(buffer.count, value)); }
  std::vector<T> get() const { return read<T>(buffer, *stream_); }

  std::shared_ptr<std::byte> memory;
  Buffer buffer;

 private:
  static std::shared_ptr<std::byte> own_memory(const GpuRank& r, std::size_t bytes) {
    if (r.memory == Memory::device) return device_memory(bytes);
    return {new std::byte[bytes](), std::default_delete<std::byte[]>()};
  }

  const TestStream* stream_;
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

// Opens the group of a rank on its group of hosts; nullptr: the ranks use that one.
using OpenGroup = std::function<std::unique_ptr<Group>(int rank, Group& host, FailureState&)>;

// Returns each rank's error; empty if it had none. As in a real job, the first error ends all
// ranks. `host_options` are those of the groups of hosts, and for `node_of` see
// make_in_process_transports.
inline std::vector<std::string> run_ranks_on_gpus(
    int ranks, const OpenGroup& open, const std::function<void(GpuRank)>& body,
    const GroupOptions& host_options = {}, const std::function<int(int rank)>& node_of = {}) {
  FailureState failures;
  auto transports = make_in_process_transports(ranks, node_of);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  const auto run = [&](int rank) {
    const auto fail = [&](const std::exception& e) {
      errors[static_cast<std::size_t>(rank)] = e.what();
      failures.fail({rank, e.what()});
    };
    try {
      P2pGroup host(std::move(transports[static_cast<std::size_t>(rank)]), failures, host_options);
      try {
        const auto group = open(rank, host, failures);
        try {
          const TestStream stream;
          body({rank, group ? *group : host, host, failures, stream,
                group ? Memory::device : Memory::host});
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

// With groups of NCCL. `change` adjusts the options of a rank.
inline std::vector<std::string> run_gpu_ranks(
    int ranks, const std::function<void(GpuRank)>& body,
    const std::function<void(int rank, NcclOptions&)>& change = {},
    const GroupOptions& host_options = {}, const std::function<int(int rank)>& node_of = {}) {
  const auto open = [&](int rank, Group& host, FailureState& failures) {
    NcclOptions options = quick_options();
    options.device = rank;
    if (change) change(rank, options);
    device_calls().set_device(rank);
    return std::make_unique<NcclGroup>(host, failures, options);
  };
  return run_ranks_on_gpus(ranks, open, body, host_options, node_of);
}

// The same, and no rank may fail.
inline void run_on_gpus(int ranks, const std::function<void(GpuRank)>& body,
                        const std::function<void(int rank, NcclOptions&)>& change = {}) {
  EXPECT_EQ(run_gpu_ranks(ranks, body, change),
            std::vector<std::string>(static_cast<std::size_t>(ranks)));
}

}  // namespace ddp::comm::test
