// SPDX-License-Identifier: Apache-2.0
// Tests the findings about synthetic InfiniBand ports.
#include "ddp_runtime/check/node/infiniband_check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/complaints.h"

namespace ddp::check {
namespace {

fabric::InfinibandPort hca(const std::string& device, double rate = 400,
                           const std::string& layer = "InfiniBand") {
  fabric::InfinibandPort result;
  result.device = device;
  result.port = 1;
  result.link_layer = layer;
  result.state = "ACTIVE";
  result.phys_state = "LinkUp";
  result.rate_gbps = rate;
  result.lid = 26;
  result.sm_lid = 1;
  result.gids = {{0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", ""},
                 {1, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"}};
  return result;
}

std::string complaints_of_hcas(const std::vector<fabric::InfinibandPort>& ports) {
  return complaints(evaluate_infiniband(ports));
}

TEST(InfinibandCheck, HealthyNodesHaveNoComplaints) {
  EXPECT_EQ(complaints_of_hcas({}), "");
  EXPECT_TRUE(evaluate_infiniband({}).empty());
  EXPECT_EQ(complaints_of_hcas({hca("m0"), hca("m1")}), "");
  // Slower RoCE ports on a node with an InfiniBand fabric are for storage.
  EXPECT_EQ(complaints_of_hcas({hca("m0"), hca("m1"), hca("s0", 100, "Ethernet")}), "");
}

TEST(InfinibandCheck, InactivePortIsReported) {
  auto down = hca("m1");
  down.state = "DOWN";
  down.phys_state = "Polling";
  EXPECT_EQ(complaints_of_hcas({hca("m0"), down}), "infiniband.state m1:1=WARNING");
  EXPECT_EQ(complaints_of_hcas({down}),
            "infiniband.state m1:1=CRITICAL");  // the node's only port
  auto waiting = hca("m2");
  waiting.state = "INIT";
  EXPECT_EQ(complaints_of_hcas({hca("m0"), waiting}), "infiniband.state m2:1=CRITICAL");
}

TEST(InfinibandCheck, HiddenStateIsUnknown) {
  auto hidden = hca("m0");
  hidden.state.clear();
  EXPECT_EQ(complaints_of_hcas({hidden}), "infiniband.state m0:1=UNKNOWN");
}

TEST(InfinibandCheck, SlowPortAmongFastOnesIsReported) {
  EXPECT_EQ(complaints_of_hcas({hca("m0"), hca("m1"), hca("m2", 200)}),
            "infiniband.rate m2:1=CRITICAL");
  EXPECT_EQ(complaints_of_hcas({hca("m0"), hca("m1", 200)}), "infiniband.rate m1:1=WARNING");
  EXPECT_EQ(complaints_of_hcas({hca("m0"), hca("m1"), hca("m2", 200), hca("m3", 200)}),
            "infiniband.rate m2:1=WARNING, infiniband.rate m3:1=WARNING");
}

TEST(InfinibandCheck, HiddenRateIsUnknown) {
  auto hidden = hca("m0");
  hidden.rate_gbps.reset();
  hidden.rate_text = "fast";
  EXPECT_EQ(complaints_of_hcas({hidden, hca("m1")}), "infiniband.rate m0:1=UNKNOWN");
}

TEST(InfinibandCheck, MissingSubnetManagerIsReported) {
  auto lost = hca("m0");
  lost.lid = 0;
  EXPECT_EQ(complaints_of_hcas({lost}), "infiniband.lid m0:1=WARNING");
  lost.lid = 26;
  lost.sm_lid = 0;
  EXPECT_EQ(complaints_of_hcas({lost}), "infiniband.lid m0:1=WARNING");
  auto roce = hca("r0", 100, "Ethernet");
  roce.lid = 0;
  EXPECT_EQ(complaints_of_hcas({roce}), "");
}

TEST(InfinibandCheck, RoceWithoutARoutableAddressIsReported) {
  auto roce = hca("r0", 100, "Ethernet");
  roce.gids[1].address = "fd00:0000:0000:0000:0000:0000:0000:0001";
  EXPECT_EQ(complaints_of_hcas({roce}), "infiniband.gid r0:1=WARNING");
  roce.gids.pop_back();  // link-local only
  EXPECT_EQ(complaints_of_hcas({roce}), "infiniband.gid r0:1=WARNING");
  auto infiniband = hca("m0");
  infiniband.gids.pop_back();  // as usual on InfiniBand
  EXPECT_EQ(complaints_of_hcas({infiniband}), "");
}

TEST(InfinibandCheck, HiddenGidsAreUnknown) {
  auto roce = hca("r0", 100, "Ethernet");
  roce.gids[0].type.clear();
  roce.gids[1].type.clear();
  EXPECT_EQ(complaints_of_hcas({roce}), "infiniband.gid r0:1=UNKNOWN");
  auto hidden = hca("m0");
  hidden.gids.clear();
  EXPECT_EQ(complaints_of_hcas({hidden}), "infiniband.gid m0:1=UNKNOWN");
}

}  // namespace
}  // namespace ddp::check
