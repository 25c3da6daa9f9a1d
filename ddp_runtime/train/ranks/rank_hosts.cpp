// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/ranks/rank_hosts.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ddp::train {

RankHosts::RankHosts(std::vector<std::string> hosts)
    : hosts_(std::move(hosts)),
      nodes_(std::set<std::string>(hosts_.begin(), hosts_.end()).size()) {}

std::size_t RankHosts::beside(std::size_t rank) const {
  return static_cast<std::size_t>(std::ranges::count(hosts_, of(rank)));
}

bool RankHosts::leads(std::size_t rank) const {
  const auto first = std::ranges::find(hosts_, of(rank));
  return static_cast<std::size_t>(first - hosts_.begin()) == rank;
}

}  // namespace ddp::train
