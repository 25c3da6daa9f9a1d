// SPDX-License-Identifier: Apache-2.0
// The choice of a RoCE port's address.
#include "spank_plugin/fabric/choice/roce_gid.h"

#include <gtest/gtest.h>

#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::add_gid;

constexpr const char* kLinkLocal = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001";
constexpr const char* kGidV4 = "0000:0000:0000:0000:0000:ffff:0a00:0001";
constexpr const char* kGidV6 = "2001:0db8:0000:0000:0000:0000:0000:0051";

int index_of(const InfinibandPort& port, std::string_view interface = "") {
  const auto gid = choose_roce_gid(port, interface);
  return gid ? gid->index : -1;
}

TEST(RoceGid, IsVersionTwoAndIPv4) {
  InfinibandPort port;
  add_gid(port, 0, kLinkLocal, "IB/RoCE v1");
  add_gid(port, 1, kLinkLocal);
  EXPECT_EQ(index_of(port), -1);
  add_gid(port, 2, kGidV4, "IB/RoCE v1");
  EXPECT_EQ(index_of(port), -1);
  add_gid(port, 5, kGidV6);
  EXPECT_EQ(index_of(port), 5);
  EXPECT_FALSE(choose_roce_gid(port, "")->is_v4);
  add_gid(port, 7, kGidV4);
  EXPECT_EQ(index_of(port), 7);
  EXPECT_TRUE(choose_roce_gid(port, "")->is_v4);
  add_gid(port, 9, kGidV4);
  EXPECT_EQ(index_of(port), 7);
}

TEST(RoceGid, PrefersTheInterfaceOfTheRoute) {
  InfinibandPort port;
  add_gid(port, 3, kGidV4, "RoCE v2", "eth1");
  add_gid(port, 5, kGidV4, "RoCE v2", "eth1.100");
  add_gid(port, 6, kGidV6, "RoCE v2", "eth1.200");
  EXPECT_EQ(index_of(port, "eth1.100"), 5);
  EXPECT_EQ(index_of(port, "eth1.200"), 3);  // IPv4 takes precedence over the interface
}

TEST(RoceGid, IsUnknownForDamagedOrHiddenTables) {
  InfinibandPort port;
  add_gid(port, 0, "not an address");
  add_gid(port, 1, kGidV4, "");
  EXPECT_EQ(index_of(port), -1);
  EXPECT_TRUE(shows_gid_types(port));
  port.gids.erase(port.gids.begin());
  EXPECT_FALSE(shows_gid_types(port));
  EXPECT_FALSE(is_roce_v2_gid(port, 1));
}

}  // namespace
}  // namespace ddp::fabric
