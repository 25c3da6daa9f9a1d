// SPDX-License-Identifier: Apache-2.0
// What becomes of a job whose batch script is gone with its node. SLURM ends such a job, but not
// with --no-kill: then the other nodes stay allocated, with nothing to do, until its time is over.
// So a small step on another node asks slurmctld, and requeues the job.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ddp_runtime/elastic/run/launcher.h"

namespace ddp::elastic {

// Starts the step, and again elsewhere if it ends.
class HostWatch {
 public:
  // `own_node` is where this process runs. Does nothing if that is not a node of a SLURM job with
  // others.
  HostWatch(const LaunchPlan& plan, std::string own_node);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  void tick();

 private:
  std::string agent_;
  std::string own_node_;
  std::vector<std::string> others_;
  std::size_t next_ = 0;  // of others_
  std::optional<LaunchedProcess> step_;
  Clock::time_point not_before_;
};

// That step: waits until SLURM has taken `host` out of the job, which it does when the node is down
// and the job has --no-kill. Then requeues the job, or cancels it if it may not be requeued. Throws
// UsageError outside of a job.
int watch_host(const std::string& host);

}  // namespace ddp::elastic
