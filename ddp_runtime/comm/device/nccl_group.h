// SPDX-License-Identifier: Apache-2.0
// A group whose collectives of device memory run on the GPUs by NCCL. Host memory, such as flags,
// counts and texts, goes by the group of hosts on which it is built.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/device/arena.h"
#include "ddp_runtime/comm/device/device_group.h"
#include "ddp_runtime/comm/device/launch_queue.h"
#include "ddp_runtime/comm/device/nccl_start.h"

namespace ddp::comm {

// Differences from a group of hosts, for device memory:
// - A collective begins after the work that is on the stream of its buffer when it is called.
// - Work::wait() makes that stream wait; Work::wait_host() makes the caller wait.
// - Collectives of all channels must be called in one order on all ranks. Ranks that differ fail
//   with both orders.
// - A message starts when a Work of a message is waited for or asked whether it is done. It takes a
//   place in the order of the collectives then, so both ranks must do this between the same two
//   calls of collectives, split() and allocate(). NCCL does not compare the lengths: the buffers of
//   sender and receiver must have the same.
// - allocate() returns device memory, after all collectives before it are done.
// - A part (split()) has a communicator, a stream and threads of its own, so that its collectives
//   have an order of their own; see Note [One order per device].
// barrier() waits on the host, until all ranks have called it and their GPUs have finished the
// collectives before it.
class NcclGroup final : public DeviceGroup {
 public:
  // Collective; see start_nccl() for errors. `host` and `failures` must outlive the group and all
  // Works. No other thread may use `host` meanwhile.
  NcclGroup(Group& host, FailureState& failures, const NcclOptions& options);
  // Collective, unless a rank has failed or an exception destroys the group. Finishes the queued
  // collectives. Memory of allocate() remains usable.
  ~NcclGroup() override;

  std::string_view backend() const noexcept override { return "nccl"; }
  int device() const noexcept override { return device_.number; }
  std::size_t device_memory() const override;

  Group& channel(const std::string& name) override;
  Group* split(int color, int key, const std::string& name) override;
  std::uint64_t call_history() const override;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  Work barrier(std::string label) override;

  // Returns when all collectives of this group and its parts are done. Throws PeerFailure after a
  // failure.
  void wait_until_idle();

 private:
  Work all_reduce_here(const Buffer& data, ReduceOp op, const Call& call) override;
  Work reduce_scatter_here(const Buffer& input, const Buffer& output, ReduceOp op,
                           const Call& call) override;
  Work all_gather_here(const Buffer& input, const Buffer& output, const Call& call) override;
  Work reduce_scatter_in_place(const Buffer& data, const Starts& starts, ReduceOp op,
                               const Call& call) override;
  Work all_gather_in_place(const Buffer& data, const Starts& starts, const Call& call) override;
  Work broadcast_here(const Buffer& data, int root, const Call& call) override;
  Work all_to_all_here(const Buffer& input, const Buffer& output, const PartSizes& sizes,
                       const Call& call) override;
  Work send_here(const Buffer& data, int peer, const Call& call) override;
  Work receive_here(const Buffer& data, int peer, const Call& call) override;

  // What all channels of a group share.
  struct Device {
    int number = 0;
    DeviceLibraries libraries = {};
    std::shared_ptr<Arena> arena = {};  // outlives the launches that use it
    std::shared_ptr<LaunchQueue> queue = {};
    std::shared_ptr<void> word = {};  // for barriers
    FailureState* failures = nullptr;
    NcclOptions options = {};  // for parts
  };
  // A channel, if it has a name, or the group itself.
  NcclGroup(Group& host, Device device, const std::optional<std::string>& channel);

  static Device open(Group& host, FailureState& failures, const NcclOptions& options,
                     StartedNccl started);
  Work launch(const char* name, const Buffer& buffer, const Call& call, LaunchQueue::Call kernels);

  Device device_;
  std::string channel_;
  bool is_channel_;
  int exceptions_ = std::uncaught_exceptions();  // when the group was created
  std::map<std::string, std::unique_ptr<NcclGroup>> channels_;
  std::vector<std::unique_ptr<NcclGroup>> parts_;
};

}  // namespace ddp::comm
