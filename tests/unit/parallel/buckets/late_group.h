// SPDX-License-Identifier: Apache-2.0
// A group whose all-reduces begin only when the caller waits for them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/unit/parallel/forwarding_group.h"

namespace ddp::test {

// Holds back all-reduces whose label begins with `prefix`. All ranks must wait for them in the same
// order, and call no other collectives in between that they do not all call there.
class LateGroup final : public ForwardingGroup {
 public:
  LateGroup(comm::Group& group, std::string prefix)
      : ForwardingGroup(group), prefix_(std::move(prefix)) {}

  // Called before an all-reduce that was held back begins.
  std::function<void()> on_wait = [] {};

  comm::Work all_reduce(comm::Buffer data, comm::ReduceOp op, std::string label,
                        std::shared_ptr<const void> keep) override {
    if (!label.starts_with(prefix_)) {
      return inner().all_reduce(data, op, std::move(label), std::move(keep));
    }
    return comm::Work::completed_by(std::make_shared<Late>([this, data, op, label, keep] {
      on_wait();
      return inner().all_reduce(data, op, label, keep);
    }));
  }

 private:
  class Late final : public comm::Work::Completion {
   public:
    explicit Late(std::function<comm::Work()> begin) : begin_(std::move(begin)) {}
    void wait() override { begun().wait(); }
    void wait_on(comm::DeviceStream stream) override { begun().wait_on(stream); }
    void wait_host() override { begun().wait_host(); }
    bool done() override { return work_ && work_->done(); }
    comm::WorkTimes times() override { return work_ ? work_->times() : comm::WorkTimes(); }

   private:
    comm::Work& begun() {
      if (!work_) work_ = begin_();
      return *work_;
    }

    std::function<comm::Work()> begin_;
    std::optional<comm::Work> work_;
  };

  std::string prefix_;
};

}  // namespace ddp::test
