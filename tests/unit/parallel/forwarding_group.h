// SPDX-License-Identifier: Apache-2.0
// A group that calls another one. Classes derived from it change or record some of the calls.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::test {

class ForwardingGroup : public comm::Group {
 public:
  explicit ForwardingGroup(comm::Group& group) : group_(group) {}

  int rank() const noexcept override { return group_.rank(); }
  int size() const noexcept override { return group_.size(); }
  int world_rank(int rank) const noexcept override { return group_.world_rank(rank); }
  const comm::GroupName& name() const noexcept override { return group_.name(); }
  std::string_view backend() const noexcept override { return group_.backend(); }
  comm::FlightRecorder& flight_recorder() noexcept override { return group_.flight_recorder(); }
  Group& channel(const std::string& name) override { return group_.channel(name); }
  comm::PointToPointChannel& point_to_point_channel(const std::string& name) override {
    return group_.point_to_point_channel(name);
  }
  Group* split(int color, int key, const std::string& name) override {
    return group_.split(color, key, name);
  }
  std::uint64_t call_history() const override { return group_.call_history(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return group_.allocate(bytes); }
  std::shared_ptr<std::byte> allocate_common(std::size_t bytes) override {
    return group_.allocate_common(bytes);
  }
  std::string machine_key() const override { return group_.machine_key(); }

  comm::Work all_reduce(comm::Buffer data, comm::ReduceOp op, std::string label,
                        std::shared_ptr<const void> keep) override {
    return group_.all_reduce(data, op, std::move(label), std::move(keep));
  }
  comm::Work reduce_scatter(comm::Buffer input, comm::Buffer output, comm::ReduceOp op,
                            std::string label, std::shared_ptr<const void> keep) override {
    return group_.reduce_scatter(input, output, op, std::move(label), std::move(keep));
  }
  comm::Work all_gather(comm::Buffer input, comm::Buffer output, std::string label,
                        std::shared_ptr<const void> keep) override {
    return group_.all_gather(input, output, std::move(label), std::move(keep));
  }
  comm::Work reduce_scatter(comm::Buffer data, comm::Cut cut, comm::ReduceOp op, std::string label,
                            std::shared_ptr<const void> keep) override {
    return group_.reduce_scatter(data, std::move(cut), op, std::move(label), std::move(keep));
  }
  comm::Work all_gather(comm::Buffer data, comm::Cut cut, std::string label,
                        std::shared_ptr<const void> keep) override {
    return group_.all_gather(data, std::move(cut), std::move(label), std::move(keep));
  }
  comm::Work all_gather(comm::Buffer part, comm::Buffer output, comm::Cut cut, std::string label,
                        std::shared_ptr<const void> keep) override {
    return group_.all_gather(part, output, std::move(cut), std::move(label), std::move(keep));
  }
  comm::Work all_to_all(comm::Buffer input, comm::Buffer output, comm::PartSizes parts,
                        std::string label, std::shared_ptr<const void> keep) override {
    return group_.all_to_all(input, output, std::move(parts), std::move(label), std::move(keep));
  }
  comm::Work broadcast(comm::Buffer data, int root, std::string label,
                       std::shared_ptr<const void> keep) override {
    return group_.broadcast(data, root, std::move(label), std::move(keep));
  }
  comm::Work send(comm::Buffer data, int peer, std::string label,
                  std::shared_ptr<const void> keep) override {
    return group_.send(data, peer, std::move(label), std::move(keep));
  }
  comm::Work receive(comm::Buffer data, int peer, std::string label,
                     std::shared_ptr<const void> keep) override {
    return group_.receive(data, peer, std::move(label), std::move(keep));
  }
  comm::Work barrier(std::string label) override { return group_.barrier(std::move(label)); }

 protected:
  comm::Group& inner() noexcept { return group_; }

 private:
  comm::Group& group_;
};

}  // namespace ddp::test
