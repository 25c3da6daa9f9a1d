// SPDX-License-Identifier: Apache-2.0
// The host that runs rank 0, and the address by which the other ranks reach it: MASTER_ADDR.
#pragma once

#include <string>
#include <string_view>

#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

// The source of an address that slurmctld gave.
inline constexpr const char* kSlurmsAddress = "scontrol show node";

struct Leader {
  std::string host;    // node name
  std::string rule;    // one phrase
  std::string source;  // variable
};

// Derives the leader from the step alone, so the result is the same in all its tasks. Throws
// UsageError, with advice, if the location of rank 0 is unknown: a guess would make the job hang.
Leader find_leader(const StepFacts& step, Order order);

// Returns the name of a host on another of its networks: "node1" with the suffix "i" becomes
// "node1i", "node1.site" with "-ib" becomes "node1-ib.site".
std::string with_suffix(std::string_view host, std::string_view suffix);

// Returns the suffix that this node uses; empty if none.
std::string suffix_in_use(const NodeFacts& node, const Settings& settings);

// Returns the address of a node of the step that this node passes to others, by the same choice as
// MASTER_ADDR's: its name, with the suffix if there is one, or SLURM's address.
std::string address_of_node(const std::string& name, const Facts& facts, const Settings& settings);

// Returns the result of find_leader with an address that is usable on this node: the host's name,
// with addr_suffix if there is one, or SLURM's address if it must replace the name, or 127.0.0.1
// for a step of one node whose name does not resolve. If the name service did not answer, the name
// is used unchanged. Throws UsageError if the name cannot be used on this node, or if a fact about
// this node contradicts the location of rank 0.
Leader find_leader_address(const Facts& facts, const Settings& settings);

}  // namespace ddp::launch
