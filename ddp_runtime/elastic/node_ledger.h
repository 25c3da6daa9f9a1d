// SPDX-License-Identifier: Apache-2.0
// What is known about each node of the allocation: whether it is there, what it has done, and until
// when it is not used.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddp_runtime/elastic/events.h"
#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

class NodeLedger {
 public:
  NodeLedger(const std::vector<std::string>& nodes, const Settings& settings);

  std::size_t size() const noexcept { return nodes_.size(); }
  bool has(const std::string& node) const { return places_.contains(node); }
  // Returns whether the node was there.
  bool lost(const std::string& node);
  // Returns whether the node was lost or excluded, and has to be checked before it is used.
  bool up(const std::string& node, Seconds now);
  void passed(const std::string& node);  // its check

  // Counts a failure of a process there. Returns the number of those before it that still count.
  int strike(const std::string& node, Seconds now);
  // Not used until then, twice as long each time. Returns when that ends.
  Seconds exclude(const std::string& node, Seconds now);
  void exclude_forever(const std::string& node);
  bool is_excluded_forever(const std::string& node) const;

  // In the order of the allocation.
  std::vector<std::string> usable(Seconds now) const;
  std::size_t number_of_usable(Seconds now) const;
  bool is_usable(const std::string& node, Seconds now) const;
  // Nodes whose exclusion has ended, which are to be checked before they are used again. Each is
  // returned once.
  std::vector<std::string> take_returning(Seconds now);

 private:
  struct Node {
    std::string name;
    bool is_there = true;
    bool passed = true;  // false: to be checked first
    Seconds excluded_until = 0;
    int exclusions = 0;
    std::vector<Seconds> strikes;
  };

  Node& at(const std::string& node) { return nodes_[places_.at(node)]; }
  const Node& at(const std::string& node) const { return nodes_[places_.at(node)]; }
  static bool is_usable(const Node& node, Seconds now);
  void note(const std::string& node);

  Settings settings_;
  std::vector<Node> nodes_;  // in the order of the allocation
  std::unordered_map<std::string, std::size_t> places_;
  // Nodes that may not be usable. Few, so that most events cost nothing for the others.
  std::set<std::size_t> out_;
};

}  // namespace ddp::elastic
