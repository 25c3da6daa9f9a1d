// SPDX-License-Identifier: Apache-2.0
// Which host runs rank 0, and the address that the other ranks use for it: MASTER_ADDR.
#pragma once

#include <string>
#include <string_view>

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

struct Leader {
  std::string host;    // node name
  std::string rule;    // one phrase
  std::string source;  // variable
};

// Derived from the step alone, so it is the same in all its tasks. Throws UsageError, with advice,
// if the location of rank 0 is unknown; a guess would make the job hang.
Leader find_leader(const StepFacts& step, Order order);

// The name of a host on another of its networks: "node1" with the suffix "i" becomes "node1i",
// "node1.site" with "-ib" becomes "node1-ib.site".
std::string with_suffix(std::string_view host, std::string_view suffix);

// The suffix that this node uses; empty if none.
std::string suffix_in_use(const NodeFacts& node, const Settings& settings);

// As find_leader, with the address that is usable on this node: the host's name, with addr_suffix
// if there is one, or 127.0.0.1 for a step of one node whose name does not resolve. A name about
// which nothing is known, because the name service did not answer, is used as it is. Throws
// UsageError if the name cannot be used on this node, or if this node shows that rank 0 is
// elsewhere.
Leader find_leader_address(const Facts& facts, const Settings& settings);

}  // namespace ddp::launch
