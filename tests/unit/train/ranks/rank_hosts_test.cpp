// SPDX-License-Identifier: Apache-2.0
// Which ranks share a machine, whose names may come in any order.
#include "ddp_runtime/train/ranks/rank_hosts.h"

#include <gtest/gtest.h>

namespace ddp::train {
namespace {

TEST(RankHosts, KnowsTheNeighborsOfARank) {
  const RankHosts hosts({"a", "b", "a", "b", "c"});
  EXPECT_EQ(hosts.ranks(), 5U);
  EXPECT_EQ(hosts.nodes(), 3U);
  EXPECT_EQ(hosts.of(3), "b");
  EXPECT_EQ(hosts.beside(3), 2U);
  EXPECT_EQ(hosts.beside(4), 1U);
}

TEST(RankHosts, TheLowestRankLeadsItsHost) {
  const RankHosts hosts({"a", "b", "a", "b", "c"});
  const std::vector<bool> leads = {true, true, false, false, true};
  for (std::size_t rank = 0; rank < leads.size(); ++rank) {
    EXPECT_EQ(hosts.leads(rank), leads[rank]) << rank;
  }
}

}  // namespace
}  // namespace ddp::train
