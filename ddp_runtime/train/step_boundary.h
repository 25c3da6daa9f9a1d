// What all ranks agree on at the end of each step: whether to save and stop now, and whether a save
// that runs beside training is still at work somewhere.
//
// Note [Stopping on request]
// SLURM says by a signal that a job is to go (preemption, scancel, the end of its time), to some or
// all ranks, in the middle of anything. The handler only notes it. Every step one small all_reduce,
// on a channel of its own, runs beside forward and backward and tells all ranks whether any was
// told: so that all stop after the same step, between two steps, with nothing on the network. The
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

// Notes SIGTERM, SIGUSR1 and SIGUSR2 while it lives, instead of dying of them. One per process is
// enough; several share what was noted.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The last one that came since the first StopSignals was made; 0 if none.
  static int received() noexcept;
  // For a program that goes on although it was told to stop.
  static void forget() noexcept;

 private:
  struct Before;
  std::array<std::unique_ptr<Before>, 3> before_;
};

// Seconds before the end of the time limit at which a save must begin: the longest step may just
// have begun, and a save may take half as long again as the longest one did.
double lead_seconds(double longest_step, double longest_save) noexcept;

class StepBoundary {
 public:
  struct Agreed {
    std::string stop;      // why to save and stop now; empty: go on
    bool writing = false;  // some rank still writes
  };

  // Collective.
  explicit StepBoundary(comm::Group& group);

  // When the job ends, for the rank that looks at the clock; the others pass nothing.
  void set_deadline(std::optional<Deadline> deadline) noexcept { deadline_ = deadline; }

  // Collective, at the begin of a step: tells the others this rank's state.
  void begin(bool writing, double lead);
  // Collective, at its end: what all ranks said at its begin.
  Agreed end();

 private:
  comm::Group& channel_;
  StopSignals signals_;
  std::optional<Deadline> deadline_;
  // Reason and writing; shared with the collective, which may outlive this when a rank fails.
  std::shared_ptr<std::array<std::int64_t, 2>> values_;
  comm::Work work_;
};

}  // namespace ddp::train
