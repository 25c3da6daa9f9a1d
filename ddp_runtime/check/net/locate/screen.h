// SPDX-License-Identifier: Apache-2.0
// What the rounds show by themselves: which nodes and links to retest, how noisy the measurements
// are, and how much slower a node would have to be to be noticed.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {

// Standard deviation of one exchange, relative to its speed. It is derived from how much the
// exchanges of each node differ among themselves, so bad nodes or bad links, as long as they are a
// minority, cannot inflate it. 0 if no node has two exchanges.
double exchange_noise(int nodes, std::span<const PairResult> results, const Classes& classes = {});

struct Screen {
  std::vector<bool> nodes;  // to retest: slow, sometimes very slow, or late
  std::vector<Pair> pairs;  // to retest, neither end being in `nodes`
  double noise = 0;         // exchange_noise()
  // How much slower than its peers, as a fraction, a node must be for 19 of 20 sets of rounds to
  // show it. nullopt if no node has enough peers.
  std::optional<double> limit = {};
};

// More sensitive than the verdict may be, because suspects are measured again.
Screen screen(int nodes, std::span<const PairResult> results, const PeerRule& rule,
              const Classes& classes = {});

// How much slower than its peers, as a fraction, a node must be to be found by the rounds and the
// following retest in 19 of 20 cases. nullopt where speeds cannot be compared.
std::optional<double> detection_limit(int nodes, std::span<const PairResult> results,
                                      const PeerRule& rule, const Classes& classes = {});

}  // namespace ddp::check
