// SPDX-License-Identifier: Apache-2.0
// A group that notes the labels of its collectives in the order in which they are started, also of
// those of its channels and parts, and how much memory it has given out. For CPUs.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/parallel/forwarding_group.h"

namespace ddp::test {

// Of one rank. Other code may add what happens between the collectives.
class CallLog {
 public:
  void add(std::string what) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(what));
  }
  // Those since the last call of this function.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }
  void add_bytes(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes;
  }
  // A rank's share of the memory of the group.
  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::size_t bytes_ = 0;
};

class RecordingGroup final : public ForwardingGroup {
 public:
  RecordingGroup(comm::Group& group, CallLog& log) : ForwardingGroup(group), log_(log) {}

  using ForwardingGroup::all_gather;
  using ForwardingGroup::reduce_scatter;

  Group& channel(const std::string& name) override {
    return others_.emplace_back(inner().channel(name), log_);
  }
  Group* split(int color, int key, const std::string& name) override {
    auto* const part = inner().split(color, key, name);
    return part == nullptr ? nullptr : &others_.emplace_back(*part, log_);
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    log_.add_bytes(bytes);
    return ForwardingGroup::allocate(bytes);
  }
  std::shared_ptr<std::byte> allocate_common(std::size_t bytes) override {
    log_.add_bytes(bytes / static_cast<std::size_t>(size()));
    return ForwardingGroup::allocate_common(bytes);
  }
  comm::Work all_reduce(comm::Buffer data, comm::ReduceOp op, std::string label,
                        std::shared_ptr<const void> keep) override {
    log_.add("all-reduce " + label);
    return ForwardingGroup::all_reduce(data, op, std::move(label), std::move(keep));
  }
  comm::Work reduce_scatter(comm::Buffer data, comm::Cut cut, comm::ReduceOp op, std::string label,
                            std::shared_ptr<const void> keep) override {
    log_.add("scatter " + label);
    return ForwardingGroup::reduce_scatter(data, std::move(cut), op, std::move(label),
                                           std::move(keep));
  }
  comm::Work all_gather(comm::Buffer data, comm::Cut cut, std::string label,
                        std::shared_ptr<const void> keep) override {
    log_.add("gather " + label);
    return ForwardingGroup::all_gather(data, std::move(cut), std::move(label), std::move(keep));
  }
  comm::Work all_gather(comm::Buffer part, comm::Buffer output, comm::Cut cut, std::string label,
                        std::shared_ptr<const void> keep) override {
    log_.add("gather " + label);
    return ForwardingGroup::all_gather(part, output, std::move(cut), std::move(label),
                                       std::move(keep));
  }

 private:
  CallLog& log_;
  std::list<RecordingGroup> others_;
};

}  // namespace ddp::test
