// SPDX-License-Identifier: Apache-2.0
// Runs `ddp-check node` on a node, while the supervisor continues.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/wake_event.h"
#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

// What the output of `ddp-check node` and its exit code say. A check that could not start, or end
// in time, makes a node unusable, and so does CRITICAL; a warning does not. If it was slurmctld
// that did not answer, a check that has no verdict is unknown.
Checked judge_check(const std::string& node, const std::string& output, bool in_time,
                    bool slurm_answers);

class NodeChecks {
 public:
  // `prefix` starts a program on the node that is appended to it, such as {"srun", "-w"}; empty for
  // this host. `limit`: within which a check ends, at least 10 s. `wake` is notified when a check
  // has ended.
  NodeChecks(std::vector<std::string> prefix, std::string check, std::chrono::seconds limit,
             const WakeEvent& wake);

  void begin(const std::string& node);
  std::vector<Event> take();

 private:
  Checked check(const std::string& node, const std::stop_token& stop) const;

  std::vector<std::string> prefix_;
  std::string check_;
  std::chrono::seconds limit_;
  const WakeEvent& wake_;
  std::mutex mutex_;
  std::vector<Event> done_;
  std::vector<std::jthread> threads_;  // each ends soon after it is asked to
};

}  // namespace ddp::elastic
