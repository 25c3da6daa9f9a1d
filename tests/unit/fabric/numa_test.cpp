// SPDX-License-Identifier: Apache-2.0
// Tables of distances between NUMA nodes: valid ones as firmware writes them, and damaged ones.
#include "spank_plugin/fabric/node/numa.h"

#include <gtest/gtest.h>

#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::fabric {
namespace {

TEST(NumaDistances, AreReadByNodeNumber) {
  const test::FakeSysfs fake(R"(
    devices/system/node/node0/distance = 10 40 80
    devices/system/node/node2/distance = 40 10 120
    devices/system/node/node10/distance = 80 120 10
    devices/system/node/online = 0,2,10
    devices/system/node/nodes = 1
    devices/system/node/node99999/distance = 10
  )");
  const NumaDistances table = read_numa_distances(fake.root());
  EXPECT_EQ(table.between(0, 10), 80);
  EXPECT_EQ(table.between(10, 2), 120);
  EXPECT_EQ(table.between(2, 2), 10);
  EXPECT_FALSE(table.between(std::nullopt, 0));
  EXPECT_FALSE(table.between(0, std::nullopt));
}

TEST(NumaDistances, DefaultToTheKernelsValues) {
  const test::FakeSysfs fake(R"(
    devices/system/node/node0/distance = 10 x
    devices/system/node/node1/distance = 21 10 31
  )");
  for (const auto& table : {NumaDistances(), read_numa_distances(fake.root()),
                            read_numa_distances(fake.root() / "none")}) {
    EXPECT_EQ(table.between(0, 0), 10);
    EXPECT_EQ(table.between(0, 1), 20);
    EXPECT_EQ(table.between(1, 0), 20);
  }
}

}  // namespace
}  // namespace ddp::fabric
