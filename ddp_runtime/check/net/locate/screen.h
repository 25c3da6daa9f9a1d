// SPDX-License-Identifier: Apache-2.0
// Evaluates the rounds alone: which nodes and links to retest, how noisy the measurements are, and
// how slow a node must be to be noticed.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {

// Standard deviation of one exchange, relative to its speed. Derived from the differences between
// the exchanges of the same node, so that a minority of bad nodes or links does not inflate it.
// Returns 0 if no node has two exchanges.
double exchange_noise(int nodes, std::span<const PairResult> results, const Classes& classes = {});

struct Screen {
  std::vector<bool> nodes;  // nodes to retest: slow, sometimes very slow, or late
  std::vector<Pair> pairs;  // links to retest; neither end is in `nodes`
  double noise = 0;         // exchange_noise()
  // The smallest slowdown relative to the peers, as a fraction, that 19 of 20 sets of rounds show.
  // nullopt if no node has enough peers.
  std::optional<double> limit = {};
};

// Uses lower thresholds than the verdict, because suspects are measured again.
Screen screen(int nodes, std::span<const PairResult> results, const PeerRule& rule,
              const Classes& classes = {});

// The smallest slowdown relative to the peers, as a fraction, that the rounds and the retest
// together find in 19 of 20 cases. Returns nullopt if speeds cannot be compared.
std::optional<double> detection_limit(int nodes, std::span<const PairResult> results,
                                      const PeerRule& rule, const Classes& classes = {});

}  // namespace ddp::check
