// SPDX-License-Identifier: Apache-2.0
// When the phases of a step ran on a device, known some steps later.
//
// Note [Steps of a device]
// A GPU runs behind the program, so the clock of the program tells only when it enqueued the
// kernels of a phase. So events are put on the training stream, one at the end of each phase, and
// read when the device has reached them, usually in the next step. Nothing waits for them. The time
// between two events belongs to the phase that ends with the second one, even if the device had
// nothing to do, for example because the loader was late.
#pragma once

#include <vector>

#include "ddp_runtime/profile/phase.h"

namespace ddp::profile {

// A step as a device ran it, on the clock of this process.
struct DeviceStep {
  struct Part {
    Phase phase;
    Interval time;
  };

  Interval time;
  std::vector<Part> parts;  // in order, without overlap
  std::vector<CommunicationSpan> communication;
};

// A broken device is no error here; the program learns about it elsewhere.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;

  // A step begins at the end of the previous one, or now after a pause.
  virtual void begin_step(bool after_pause) = 0;
  // What the program has enqueued since the last call belongs to this phase.
  virtual void end(Phase phase) noexcept = 0;
  virtual void end_step() = 0;
  // The steps that the device has completed since the last call, in order. Does not wait.
  virtual std::vector<DeviceStep> take_completed() = 0;

 protected:
  DeviceTimer() = default;
  DeviceTimer(const DeviceTimer&) = default;
  DeviceTimer& operator=(const DeviceTimer&) = default;
};

}  // namespace ddp::profile
