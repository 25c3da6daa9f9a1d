// SPDX-License-Identifier: Apache-2.0
// What all ranks agree on at the end of each step: whether to save and stop now, and whether a
// background save is still running on any rank.
//
// Note [Stopping on request]
// SLURM announces with a signal that a job has to end (preemption, scancel, the end of its time
// limit), to some or all ranks, at any moment. The handler only notes it. In every step a small
// all_reduce on a separate channel runs beside forward and backward and informs all ranks whether
// any rank has received a signal: so all of them stop after the same step, between two steps, with
// nothing on the network. The end of the time limit is detected without a signal, early enough for
// a last save.
// end of the time limit is found without a signal, early enough for a last save.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/train/job_deadline.h"

namespace ddp::train {

// While alive, notes SIGTERM, SIGUSR1 and SIGUSR2 instead of letting them kill the process. One per
// process is enough; several share the noted signal.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The last signal received since the first StopSignals was created; 0 if none.
  static int received() noexcept;
  // For a program that continues although it was asked to stop.
  static void forget() noexcept;

 private:
  struct Before;
  std::array<std::unique_ptr<Before>, 3> before_;
};

// Seconds before the end of the time limit at which a save must begin: the longest step may just
// have begun, and a save may take half as long again as the longest one so far.
double lead_seconds(double longest_step, double longest_save) noexcept;

class StepBoundary {
 public:
  struct Agreed {
    std::string stop;      // why to save and stop now; empty: continue
    bool writing = false;  // some rank is still writing
  };

  // Collective.
  explicit StepBoundary(comm::Group& group);

  // When the job ends; set on the rank that watches the clock, nullopt on the others.
  void set_deadline(std::optional<Deadline> deadline) noexcept { deadline_ = deadline; }

  // Collective, at the beginning of a step: sends this rank's state to the others.
  void begin(bool writing, double lead);
  // Collective, at the end of the step: the combined state that all ranks sent at its beginning.
  Agreed end();

 private:
  comm::Group& channel_;
  StopSignals signals_;
  std::optional<Deadline> deadline_;
  // Reason and writing; shared with the collective, which may outlive this object when a rank
  // fails.
  std::shared_ptr<std::array<std::int64_t, 2>> values_;
  comm::Work work_;
};

}  // namespace ddp::train
