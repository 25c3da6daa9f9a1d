// SPDX-License-Identifier: Apache-2.0
// Tests which nodes are measured with each other over a path, and how they are compared.
#include "ddp_runtime/check/net/net_path.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace ddp::check {
namespace {

class PathOfThree : public testing::Test {
 protected:
  PathOfThree() {
    for (int rank = 0; rank < 3; ++rank) {
      Hello& task = present_[rank];
      task.node = std::string(1, static_cast<char>('a' + rank));
      nodes_.push_back({task.node, 1, {rank}});
    }
  }
  std::string members(const NetPath& path) {
    std::string text;
    for (const auto& node : nodes_with(path, nodes_, present_)) text += node.name;
    return text;
  }
  std::map<int, Hello> present_;
  std::vector<NodeEntry> nodes_;
};

TEST_F(PathOfThree, HasTheNodesWithAnAddressOnTheRail) {
  present_[0].rails["eth1"] = {"10.0.0.1", 1e9, true};
  present_[2].rails["eth1"] = {"10.0.0.3", 2e9, true};
  const NetPath path{TransportKind::tcp, "tcp_eth1", "TCP over eth1", "eth1"};
  EXPECT_EQ(members({TransportKind::tcp, "tcp", "TCP"}), "abc");
  EXPECT_EQ(members(path), "ac");
  EXPECT_EQ(classes_on(path, nodes_with(path, nodes_, present_), present_), (Classes{0, 1}));
  EXPECT_EQ(link_rate_on(path, present_[2]), 2e9);
}

TEST_F(PathOfThree, HasTheNodesWithAPortAndTheToolForIt) {
  for (auto& [rank, task] : present_) task.rdma_measurable = rank > 0;
  NetPath path{TransportKind::verbs, "verbs", "RDMA", "m0:1"};
  path.ports = {{"a", {"m0:1", "", 1e9}}, {"b", {"m0:1", "", 1e9}}};
  EXPECT_EQ(members(path), "b");
  EXPECT_EQ(link_rate_on(path, present_[1]), std::nullopt);  // only that of TCP is compared
  EXPECT_EQ(reason_for_no_pair(nodes_with(path, nodes_, present_)), "it can be measured only on b");
  EXPECT_EQ(reason_for_no_pair({}), "it can be measured on no node");
}

TEST_F(PathOfThree, HasTheNodesOnWhichNcclCanUseGpus) {
  present_[0].gpus = present_[1].gpus = 8;
  present_[1].nccl_version = "2.18.3";
  EXPECT_EQ(members({TransportKind::nccl, "nccl", "NCCL"}), "b");
}

}  // namespace
}  // namespace ddp::check
