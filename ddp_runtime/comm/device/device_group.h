// SPDX-License-Identifier: Apache-2.0
// A group of ranks with GPUs, built on a group of their hosts: gives host memory to that group, and
// checks the calls for device memory before it makes them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::comm {

class DeviceGroup : public Group {
 public:
  int rank() const noexcept final { return host_.rank(); }
  int size() const noexcept final { return host_.size(); }
  int world_rank(int rank) const noexcept final { return host_.world_rank(rank); }
  const GroupName& name() const noexcept final { return host_.name(); }
  FlightRecorder& flight_recorder() noexcept final { return host_.flight_recorder(); }
  PointToPointChannel& point_to_point_channel(const std::string& name) final {
    return host_.point_to_point_channel(name);
  }
  std::shared_ptr<std::byte> allocate_common(std::size_t bytes) final {
    return host_.allocate_common(bytes);
  }
  std::string machine_key() const final { return host_.machine_key(); }

  // The number of this rank's GPU among those that this process sees.
  virtual int device() const noexcept = 0;
  // See device_memory_of().
  virtual std::size_t device_memory() const = 0;

  // Buffers of one call must be in the same memory, on the same stream.
  Work all_reduce(Buffer data, ReduceOp op, std::string label,
                  std::shared_ptr<const void> keep) final;
  Work reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label,
                      std::shared_ptr<const void> keep) final;
  Work all_gather(Buffer input, Buffer output, std::string label,
                  std::shared_ptr<const void> keep) final;
  Work reduce_scatter(Buffer data, Cut cut, ReduceOp op, std::string label,
                      std::shared_ptr<const void> keep) final;
  Work all_gather(Buffer data, Cut cut, std::string label, std::shared_ptr<const void> keep) final;
  // For host memory only.
  Work all_gather(Buffer part, Buffer output, Cut cut, std::string label,
                  std::shared_ptr<const void> keep) final;
  Work broadcast(Buffer data, int root, std::string label, std::shared_ptr<const void> keep) final;
  Work all_to_all(Buffer input, Buffer output, PartSizes sizes, std::string label,
                  std::shared_ptr<const void> keep) final;
  Work send(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) final;
  Work receive(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) final;

 protected:
  // `host` must outlive this object.
  explicit DeviceGroup(Group& host) : host_(host) {}
  Group& host() const noexcept { return host_; }

  // Besides its buffers, of a call for device memory that fits this group.
  struct Call {
    std::string signature;  // the same on all ranks, for the history of calls
    std::string label;
    std::shared_ptr<const void> keep;
  };

 private:
  virtual Work all_reduce_here(const Buffer& data, ReduceOp op, const Call& call) = 0;
  virtual Work reduce_scatter_here(const Buffer& input, const Buffer& output, ReduceOp op,
                                   const Call& call) = 0;
  virtual Work all_gather_here(const Buffer& input, const Buffer& output, const Call& call) = 0;
  // `starts`: of the parts of all ranks.
  virtual Work reduce_scatter_in_place(const Buffer& data, const Starts& starts, ReduceOp op,
                                       const Call& call) = 0;
  virtual Work all_gather_in_place(const Buffer& data, const Starts& starts, const Call& call) = 0;
  virtual Work broadcast_here(const Buffer& data, int root, const Call& call) = 0;
  virtual Work all_to_all_here(const Buffer& input, const Buffer& output, const PartSizes& sizes,
                               const Call& call) = 0;
  // The signature is empty: other ranks do not take part.
  virtual Work send_here(const Buffer& data, int peer, const Call& call) = 0;
  virtual Work receive_here(const Buffer& data, int peer, const Call& call) = 0;

  Group& host_;
};

}  // namespace ddp::comm
