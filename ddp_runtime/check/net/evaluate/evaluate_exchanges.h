// SPDX-License-Identifier: Apache-2.0
// Findings about exchanges that are bad even without a comparison with other nodes: they failed,
// corrupted data, lost packets, or were too slow for their link. Each blames the nodes or
// links that explain the bad exchanges.
#pragma once

#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"

namespace ddp::check {

// Exchanges without a result. A slow node explains its timeouts.
std::vector<Finding> evaluate_failures(const PairsMeasured& measured, const PeerRule& rule);

// Exchanges with wrong bytes.
std::vector<Finding> evaluate_data(const PairsMeasured& measured);

// Exchanges far below the rate of their link, where it is known.
std::vector<Finding> evaluate_link_rates(const PairsMeasured& measured, const LinkRule& rule);

// Repeated packet loss between the same two nodes.
std::vector<Finding> evaluate_loss(const PairsMeasured& measured, const PeerRule& rule);

// Whether one end of the link is bad with all partners, so that the link itself is not to blame.
bool ends_at_bad_node(const PairsMeasured& measured, const Pair& link, const PeerRule& rule);

}  // namespace ddp::check
