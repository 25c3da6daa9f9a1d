// SPDX-License-Identifier: Apache-2.0
// Events on the training stream between the phases of a step. See Note [Steps of a device].
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/profile/device_timer.h"

namespace ddp {

// Note [Marks and the clock]
// Events tell how much time passed between two of them, not when. The first one is on an idle
// stream, so the device reaches it when it is recorded, and the times of the others follow. As
// clocks of devices and hosts drift apart, a step is moved as a whole if one of its marks would be
// reached before it was recorded, or after it was found reached.
//
// Not thread-safe.
class StepMarks final : public profile::DeviceTimer {
 public:
  // The stream is the one that is current for the thread when a mark is made. Needs
  // torch_compat::kSupportsDevices.
  explicit StepMarks(torch::Device device);
  ~StepMarks() override;

  void begin_step(bool after_pause) override;
  void end(profile::Phase phase) noexcept override;
  void end_step() override;
  std::vector<profile::DeviceStep> take_completed() override;
  // A collective of this step for which the stream waits.
  void add(std::string label, std::size_t bytes, comm::Work work);

 private:
  struct Mark;
  using MarkPointer = std::shared_ptr<Mark>;
  struct Part {
    profile::Phase phase;
    MarkPointer end;
  };
  struct Collective {
    std::string label;
    std::size_t bytes;
    comm::Work work;
  };
  struct Step {
    MarkPointer begin;
    std::vector<Part> parts;
    MarkPointer end;
    std::vector<Collective> collectives;
  };

  MarkPointer record();
  MarkPointer mark() noexcept;  // null if the device is broken
  static bool completed(const Step& step);
  profile::DeviceStep times_of(const Step& step);

  torch::Device device_;
  bool broken_ = false;  // the device: nothing is measured any more
  Step current_;
  std::deque<Step> running_;
  std::shared_ptr<std::vector<std::unique_ptr<Mark>>> unused_;
  MarkPointer last_;  // the end of the last step whose times are known
  profile::Clock::time_point time_of_last_;
};

}  // namespace ddp
