// SPDX-License-Identifier: Apache-2.0
// The agreement of all ranks at the end of each step: whether to save and stop now, whether a save
// is due by time, and whether a background save is still running on any rank.
//
// Note [Stopping on request]
// SLURM announces the end of a job (preemption, scancel, the end of its time limit) with a signal
// to some or all ranks, at any moment. The handler only records it. In every step, a small
// all_reduce on a separate channel runs alongside forward and backward and tells all ranks whether
// any rank has received a signal. So all ranks stop after the same step, between two steps, with no
// messages in flight. The end of the time limit is detected without a signal, early enough for a
// last save.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/ranks/job_deadline.h"

namespace ddp::train {

// While an instance exists, SIGTERM, SIGUSR1 and SIGUSR2 are recorded and do not kill the process.
// One instance per process is enough; several share the recorded signal.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The last signal received since the first StopSignals was created; 0 if none.
  static int received() noexcept;
  // Clears it, for a program that continues although it received a stop signal.
  static void forget() noexcept;

 private:
  struct Before;
  std::array<std::unique_ptr<Before>, 3> before_;
};

// For a program whose work is done, so that its exit status says so: from now until it exits, the
// signals of StopSignals do nothing.
void ignore_stop_signals() noexcept;

// Seconds before the end of the time limit at which a save must begin. The longest step may have
// just begun, and a save may take 50 % longer than the longest one so far.
double lead_seconds(double longest_step, double longest_save) noexcept;

class StepBoundary {
 public:
  struct Agreed {
    std::string stop;      // why to save and stop now; empty: continue
    bool writing = false;  // a rank is still writing
    bool save = false;     // a rank has asked for a save
    bool copying = false;  // a rank is still writing a copy in memory
    bool copy = false;     // a rank has asked for a copy in memory
  };
  // Of the copies in the memory of nodes.
  struct Copies {
    bool writing = false;
    bool wanted = false;
  };

  // Collective.
  explicit StepBoundary(comm::Group& group);

  // The end of the job; set on the rank that watches the clock, nullopt on the others.
  void set_deadline(std::optional<Deadline> deadline) noexcept { deadline_ = deadline; }

  // Collective, at the beginning of a step: sends this rank's state to the others.
  // `save` asks for a save after the step at which the ranks agree; clocks differ between ranks, so
  // only one rank should ask by time.
  void begin(bool writing, double lead, bool save, Copies copies);
  void begin(bool writing, double lead, bool save = false) { begin(writing, lead, save, {}); }
  // Collective, at the end of the step: the combined state that all ranks sent at its beginning.
  Agreed end();

 private:
  comm::Group& channel_;
  StopSignals signals_;
  std::optional<Deadline> deadline_;
  // Reason, and the other members of Agreed; shared with the collective, which may outlive this
  // object when a rank fails.
  std::shared_ptr<std::array<std::int64_t, 5>> values_;
  comm::Work work_;
};

}  // namespace ddp::train
