// SPDX-License-Identifier: Apache-2.0
// Plans the search for bad nodes and links as a sequence of rounds of disjoint pairs: chooses the
// next measurement from the results so far. It performs no measurements itself, so that real and
// simulated checks make the same decisions.
//
// 1. It plans the rounds of the tournament, and adds rounds as long as the noise could hide a
//    CRITICAL slowdown.
// 2. It measures suspect nodes again, each time with a different good node, while other good nodes
//    exchange data at the same time. Several suspects are measured at once, each with its own
//    partner.
// 3. It measures both ends of each bad link in the same way, to distinguish a bad link from a bad
//    node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/locate/retest.h"

namespace ddp::check {

struct SessionOptions {
  int nodes = 0;
  Classes classes = {};
  int rounds = 0;  // rounds of the tournament; 0: chosen by plan_rounds, more if noisy
  std::uint64_t seed = 0;
  PeerRule rule = {};
  bool retests = true;
};

struct SessionStep {
  enum class Kind : std::uint8_t { round, retest } kind = Kind::round;
  int number = 1;            // number of the round or the try
  int of = 1;                // number planned so far
  std::size_t suspects = 0;  // suspects measured again in this step
  Round pairs;
};

class PairSession {
 public:
  using CanTakePart = std::function<bool(int node)>;

  explicit PairSession(SessionOptions options);

  // Returns the next measurement, or nullopt when done. After each step, pass its results to
  // take().
  std::optional<SessionStep> next(const CanTakePart& can_take_part);
  // Records the results of the last step. Pairs without a result count as not measured.
  void take(std::span<const PairResult> results);

  // The results of the rounds.
  const std::vector<PairResult>& results() const noexcept { return results_; }
  const std::vector<Retest>& retests() const noexcept { return retests_; }

 private:
  struct SubRound {
    Round pairs;
    std::vector<std::size_t>
        suspects;  // one index per pair, for the first pairs; the remaining pairs are references
    std::vector<PairResult> results;
  };

  bool plan_more_rounds();
  void find_suspects();
  bool add_ends_of_bad_links();
  void trust_the_good();
  void begin_tries();
  void begin_try();
  void finish_tries();
  void end_try();
  std::optional<SessionStep> next_try(const CanTakePart& can_take_part);
  SubRound deal(const CanTakePart& can_take_part);
  SubRound deal_references(const CanTakePart& can_take_part);
  bool place(std::size_t suspect, std::map<int, std::size_t>& cursors, std::set<int>& busy,
             SubRound& round, const CanTakePart& can_take_part);
  void add_references(int number, std::size_t most, std::set<int>& busy, SubRound& round,
                      const CanTakePart& can_take_part);
  bool suspected_link(const Pair& pair) const { return bad_links_.contains(pair); }
  int partner_at(int number, std::size_t place) const;
  int class_of_suspect(const Retest& retest) const;

  SessionOptions options_;
  std::vector<Round> rounds_;
  std::size_t begun_ = 0;  // rounds started
  std::vector<PairResult> results_;
  std::vector<Retest> retests_;
  std::set<Pair> bad_links_;                 // suspected links, not used as references
  std::map<int, std::vector<int>> trusted_;  // good nodes by class
  enum class Phase : std::uint8_t { rounds, suspects, ends, done } phase_ = Phase::rounds;
  std::size_t first_ = 0;             // first retest of this phase
  int tries_ = 0;                     // tries planned for each suspect
  int try_ = 0;                       // tries started
  std::vector<std::size_t> left_;     // suspects not yet measured in this try
  std::vector<SubRound> sub_rounds_;  // sub-rounds of this try
  std::map<int, std::vector<std::vector<double>>> references_;  // speeds by class and try
};

}  // namespace ddp::check
