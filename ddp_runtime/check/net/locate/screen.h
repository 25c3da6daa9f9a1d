// What the rounds say by themselves: who has to be measured again, how noisy the measurements are,
// and how much slower a node would have to be to attract attention.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {

// Standard deviation of one exchange, as a part of its speed: from how much the exchanges of each
// node differ among themselves, which neither bad nodes nor bad links, if they are the minority,
// can blow up. 0 for fewer than two exchanges of every node.
double exchange_noise(int nodes, std::span<const PairResult> results, const Classes& classes = {});

struct Screen {
  std::vector<bool> nodes;  // to be measured again: slow, now and then very slow, or late
  std::vector<Pair> pairs;  // likewise, neither of whose ends is
  double noise = 0;         // exchange_noise()
  // Part by which a node must be slower than its peers for 19 of 20 rounds to show it. Nothing if
  // nobody has enough peers.
  std::optional<double> limit = {};
};

// More easily alarmed than the verdict may be, because what it sees is measured again.
Screen screen(int nodes, std::span<const PairResult> results, const PeerRule& rule,
              const Classes& classes = {});

// Part by which a node must be slower than its peers to be found, by the rounds and by the retest
// that follows, in 19 of 20 cases. Nothing where speeds cannot be compared.
std::optional<double> detection_limit(int nodes, std::span<const PairResult> results,
                                      const PeerRule& rule, const Classes& classes = {});

}  // namespace ddp::check
