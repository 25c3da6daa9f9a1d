// The second look at whoever seems slow or lossy: measured again and again with the rest of the
// network quiet, in turn with pairs that are good, and judged by these alone.
//
// The rounds measure many pairs at once, and whatever else a machine does slows some of them. Such
// disturbances come and go, and hit the good pairs as well; a fault is there every time. So the
// best of the suspect's measurements counts, against what the good pairs reached in between.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {

struct Retrial {
  std::optional<int> node = {};  // the suspect: a node, or
  Pair link = {};                // the link between two
  bool lossy = false;            // the link lost data in the rounds
  // Bytes per second of what the node sends and receives; of a link from a to b and back.
  std::vector<double> send = {};
  std::vector<double> receive = {};
  std::vector<double> lost = {};        // part of the data, of a link
  std::vector<double> references = {};  // bytes per second of good pairs, both directions

  // One more measurement of the suspect; of a node with any partner.
  void add(const PairResult& result);
};

inline constexpr int kMostAttempts = 5;

// A suspect is cleared by one measurement in which nothing is wrong; one that lost data in the
// rounds by two, as few packets may get through a lossy link by luck. It is convicted after five
// measurements without, or after four that are far below.
enum class Opinion : std::uint8_t { open, cleared, convicted };
Opinion opinion(const Retrial& retrial, const PeerRule& rule);

// How grave the best of the measurements in a direction is; OK without any.
Severity severity_of(const Retrial& retrial, Direction direction, const PeerRule& rule);

// Whether the link lost data in the rounds and in all measurements since but one at most.
bool keeps_losing(const Retrial& retrial);

// Who seems slow or lossy after the rounds.
std::vector<Retrial> suspects(int nodes, std::span<const PairResult> results, const PeerRule& rule);

// The nodes that suspects are measured with and that stand for good ones: the fastest half, three
// at least, without suspects if two others are left.
std::vector<int> trusted_nodes(int nodes, std::span<const PairResult> results,
                               std::span<const Retrial> suspects);

// The pair that measures a suspect at this attempt: a node with a different partner each time.
// Nothing if there is no other node to measure it with.
std::optional<Pair> pair_for(const Retrial& retrial, std::span<const int> trusted, int attempt);

// The pair of trusted nodes to compare with, whose link is not suspected itself; nothing if there
// is none.
std::optional<Pair> reference_for(std::span<const int> trusted, std::span<const Retrial> suspects,
                                  int attempt);

}  // namespace ddp::check
