// SPDX-License-Identifier: Apache-2.0
// The failures of one generation, and whose they are. A rank that is killed takes the others with
// it: those end with an error of their own, and are not to blame.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

class FailureReport {
 public:
  enum class Kind : std::uint8_t { rank, node };
  struct Blamed {
    std::string node;
    Kind kind = Kind::rank;  // node: it was lost, or all of its processes were killed
    std::string why;
  };

  // `nodes` are those of the generation, in the order of the ranks.
  FailureReport(std::vector<std::string> nodes, int ranks_per_node);

  void add(const RankEnded& ended);
  void add(const Told& told);
  void add_missing(int rank, Seconds seconds);  // it has not started
  void add_silent(int rank, Seconds seconds);
  void add_launcher(const std::string& text);
  void add_lost(const std::string& node, const std::string& why);

  // In the order of the ranks. Empty if nothing is known but that it ended.
  std::vector<Blamed> blamed() const;
  // One line for people.
  std::string text() const;
  bool has_lost_node() const noexcept { return !lost_.empty(); }
  // What is alike if a program fails twice for the same reason; empty if a program can not be the
  // reason, as for a lost node.
  std::string signature() const;

 private:
  std::string node_of(int rank) const;
  std::set<int> culprits() const;
  std::string why(int rank) const;

  std::vector<std::string> nodes_;
  int ranks_per_node_;
  std::vector<RankEnded> ended_;  // in the order of arrival
  std::optional<Told> told_;      // the first
  std::map<int, Seconds> silent_;
  std::map<int, Seconds> missing_;
  std::map<std::string, std::string> lost_;
  std::string launcher_;
};

// "signal 9 (Killed)" or "exit code 1".
std::string describe(const RankEnded& ended);

}  // namespace ddp::elastic
