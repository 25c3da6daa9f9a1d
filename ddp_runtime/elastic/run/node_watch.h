// SPDX-License-Identifier: Apache-2.0
// Asks from time to time which nodes can be used, as SLURM sees them.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

// The nodes that can start a step, from lines "NAME STATE" as `sinfo -h -N -o "%N %T"` prints them.
std::vector<std::string> usable_nodes(std::string_view sinfo);

// A command that prints the state of a job and its nodes, and the nodes of a running one from that.
// A node that is down is no longer among them if the job has --no-kill.
std::vector<std::string> question_for_nodes(const std::string& job);
std::optional<std::vector<std::string>> nodes_of_job(std::string_view squeue);

class NodeWatch {
 public:
  // `job` is that of SLURM, empty elsewhere: then all nodes can be used.
  NodeWatch(std::vector<std::string> nodes, std::string job, std::chrono::seconds interval);

  std::vector<Event> take();

 private:
  void watch(const std::stop_token& stop);
  void look();

  std::vector<std::string> nodes_;  // that the job still has
  std::string job_;
  std::chrono::seconds interval_;
  std::mutex mutex_;
  std::vector<Event> events_;
  std::jthread thread_;
};

}  // namespace ddp::elastic
