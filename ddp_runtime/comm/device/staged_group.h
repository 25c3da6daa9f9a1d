// SPDX-License-Identifier: Apache-2.0
// A group whose collectives of device memory travel through page-locked memory of the host, by the
// group of hosts on which it is built; see Note [Staging] in staging_queue.h. It is slower than
// NCCL, but works with any number of ranks per GPU and on any network, and it adds like the group
// of hosts, in rank order too. Host memory goes by the group of hosts directly.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddp_runtime/comm/device/device_group.h"
#include "ddp_runtime/comm/device/nccl_options.h"
#include "ddp_runtime/comm/device/staging_options.h"
#include "ddp_runtime/comm/device/staging_queue.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"

namespace ddp::comm {

// Differences from a group of hosts, for device memory:
// - A collective begins after the work that is on the stream of its buffer when it is called.
// - Work::wait() blocks until all ranks have sent their data, and then makes that stream wait;
//   Work::wait_host() makes the caller wait. A send, and a broadcast on its root, are done when
//   their data has left the GPU.
// - Collectives of device memory have an order of their own: one of host memory may overtake them.
// - allocate() returns device memory.
// barrier() waits on the host, until all ranks have called it and the collectives of device memory
// before it are done.
class StagedGroup final : public DeviceGroup {
 public:
  // Collective. Chooses and checks the GPU of each rank, from the options that NCCL has too, and
  // opens a channel of `host`. Throws on all ranks if there is an error on one: UsageError if the
  // user can change the cause, RuntimeError or PeerFailure otherwise. `host` and `failures` must
  // outlive the group and all Works. No other thread may use `host` meanwhile.
  StagedGroup(Group& host, FailureState& failures, const NcclOptions& gpu,
              const StagingOptions& staging = {});
  // Finishes the queued collectives, unless a rank has failed or an exception destroys the group.
  // Memory of allocate() remains usable.
  ~StagedGroup() override;

  std::string_view backend() const noexcept override { return host().backend(); }
  int device() const noexcept override { return shared_->device; }
  std::size_t device_memory() const override;

  Group& channel(const std::string& name) override;
  Group* split(int color, int key, const std::string& name) override;
  std::uint64_t call_history() const override;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  Work barrier(std::string label) override;

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
  struct Shared {
    Group& main;  // of hosts; opens channels
    FailureState& failures;
    int device = 0;
    std::string gpu = {};  // its PCI address
    LinkLimits limits = {};
    std::size_t memory_bytes = 0;
    std::shared_ptr<EventPool> events = {};
    // Bytes of allocate() that are not freed. Their pointers may outlive the group.
    std::shared_ptr<std::atomic<std::size_t>> allocated =
        std::make_shared<std::atomic<std::size_t>>(0);
  };
  using SharedPtr = std::shared_ptr<const Shared>;
  // A channel, or the group itself. `host` carries host memory.
  StagedGroup(Group& host, SharedPtr shared, const std::string& name);

  static SharedPtr open(Group& host, FailureState& failures, const NcclOptions& gpu,
                        const StagingOptions& staging);
  // Calls make(first, count, label) for consecutive ranges of `count` elements that fit into the
  // memory, if each element takes `bytes_each` bytes of it.
  using MakePiece = std::function<StagingQueue::Piece(std::size_t first, std::size_t count,
                                                      const std::string& label)>;
  std::vector<StagingQueue::Piece> in_pieces(std::size_t count, std::size_t bytes_each,
                                             const std::string& label, const MakePiece& make) const;
  // Numbers the call, and adds it to the call history with its signature.
  Work submit(const std::string& name, const Call& call, StagingQueue::Call staged);

  SharedPtr shared_;
  Group& carrier_;            // of hosts, for the data of this group's device memory
  mutable std::mutex mutex_;  // for the two below
  std::uint64_t next_number_ = 0;
  std::uint64_t history_ = 0;
  int exceptions_ = std::uncaught_exceptions();  // when the group was created
  std::unique_ptr<StagingQueue> queue_;
  std::map<std::string, std::unique_ptr<StagedGroup>> channels_;
  std::vector<std::unique_ptr<StagedGroup>> parts_;
};

}  // namespace ddp::comm
