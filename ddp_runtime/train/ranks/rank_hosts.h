// SPDX-License-Identifier: Apache-2.0
// Which ranks share a machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::train {

class RankHosts {
 public:
  RankHosts() = default;
  // The host of each rank, in rank order.
  explicit RankHosts(std::vector<std::string> hosts);

  std::size_t ranks() const noexcept { return hosts_.size(); }
  std::size_t nodes() const noexcept { return nodes_; }
  const std::string& of(std::size_t rank) const { return hosts_.at(rank); }
  // The number of ranks on the host of this one, itself included.
  std::size_t beside(std::size_t rank) const;
  // Whether this is the lowest rank of its host.
  bool leads(std::size_t rank) const;

 private:
  std::vector<std::string> hosts_;
  std::size_t nodes_ = 0;
};

}  // namespace ddp::train
