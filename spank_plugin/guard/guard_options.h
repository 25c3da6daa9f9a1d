// SPDX-License-Identifier: Apache-2.0
// What a guard must know of its task and step, and how the plugin hands it to ddp-guard.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/guard/verdict.h"

namespace ddp::guard {

// Where a guard of rank 0's node listens to those of the other nodes. No ports: nowhere.
struct HubPlace {
  std::vector<std::string> addresses;  // numeric
  std::vector<std::uint16_t> ports;    // it takes the first one that is free
};

struct GuardOptions {
  std::uint32_t rank = 0;        // of the task; of the agent under torchrun
  std::uint32_t task_count = 1;  // of the step
  std::uint32_t local_rank = 0;
  std::uint32_t local_task_count = 1;  // of the step on this node
  bool is_agent = false;               // torchrun's, whose workers are the ranks
  bool launcher_reaches_all = false;   // see is_to_be_passed_on()
  std::chrono::seconds stall{60};      // after which ranks without progress are reported
  bool ends_on_failure = false;        // of a rank, by itself: the others, too
  bool ends_on_stall = false;
  std::string node;      // may be empty
  int node_record = -1;  // file of the NodeRecord; -1 for none
  HubPlace hub = {};
  std::string record_name = {};  // to find the record by; empty if there is nothing to find

  // Returns "rank 5", or "torchrun's agent 1".
  std::string who() const;
  // And "rank 5 (node2)".
  std::string subject() const;
  Peers peers() const noexcept;
};

// The options with what fork_task() returned.
struct GuardArguments {
  pid_t child = -1;
  int errors = -1;  // -1 for none
  GuardOptions options;
};

// Converts arguments of ddp-guard, without the program's name, and back. parse_arguments() returns
// nullopt for others, and for a child that kill(2) would take for many processes.
std::vector<std::string> format_arguments(const GuardArguments& arguments);
std::optional<GuardArguments> parse_arguments(std::span<const std::string_view> words);

}  // namespace ddp::guard
