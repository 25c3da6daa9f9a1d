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
#include "ddp_runtime/comm/device/launch_queue.h"
#include "ddp_runtime/comm/device/nccl_start.h"
#include "ddp_runtime/comm/group/group.h"

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
class NcclGroup final : public Group {
 public:
  // Collective; see start_nccl() for errors. `host` and `failures` must outlive the group and all
  // Works. No other thread may use `host` meanwhile.
  NcclGroup(Group& host, FailureState& failures, const NcclOptions& options);
  // Collective, unless a rank has failed or an exception destroys the group. Finishes the queued
  // collectives. Memory of allocate() remains usable.
  ~NcclGroup() override;

  int rank() const noexcept override { return host_.rank(); }
  int size() const noexcept override { return host_.size(); }
  int world_rank(int rank) const noexcept override { return host_.world_rank(rank); }
  const GroupName& name() const noexcept override { return host_.name(); }
  std::string_view backend() const noexcept override { return "nccl"; }
  // The number of this rank's GPU among those that this process sees.
  int device() const noexcept { return device_.number; }
  FlightRecorder& flight_recorder() noexcept override { return host_.flight_recorder(); }
  // See device_memory_of().
  std::size_t device_memory() const;

  Group& channel(const std::string& name) override;
  PointToPointChannel& point_to_point_channel(const std::string& name) override;
  Group* split(int color, int key, const std::string& name) override;
  std::uint64_t call_history() const override;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  std::shared_ptr<std::byte> allocate_common(std::size_t bytes) override {
    return host_.allocate_common(bytes);
  }
  std::string machine_key() const override { return host_.machine_key(); }
  Work all_reduce(Buffer data, ReduceOp op, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label,
                      std::shared_ptr<const void> keep) override;
  Work all_gather(Buffer input, Buffer output, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work reduce_scatter(Buffer data, Cut cut, ReduceOp op, std::string label,
                      std::shared_ptr<const void> keep) override;
  Work all_gather(Buffer data, Cut cut, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work all_gather(Buffer part, Buffer output, Cut cut, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work broadcast(Buffer data, int root, std::string label,
                 std::shared_ptr<const void> keep) override;
  Work all_to_all(Buffer input, Buffer output, PartSizes parts, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work send(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) override;
  Work receive(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) override;
  Work barrier(std::string label) override;

  // Returns when all collectives of this group and its parts are done. Throws PeerFailure after a
  // failure.
  void wait_until_idle();

 private:
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
  Work launch(std::string name, const Buffer& buffer, std::string signature, std::string label,
              LaunchQueue::Call call, std::shared_ptr<const void> keep);

  Group& host_;
  Device device_;
  std::string channel_;
  bool is_channel_;
  int exceptions_ = std::uncaught_exceptions();  // when the group was created
  std::map<std::string, std::unique_ptr<NcclGroup>> channels_;
  std::vector<std::unique_ptr<NcclGroup>> parts_;
};

}  // namespace ddp::comm
