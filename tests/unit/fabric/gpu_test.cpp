// SPDX-License-Identifier: Apache-2.0
// GPUs and their positions in fake PCI trees.
#include "spank_plugin/fabric/node/gpu.h"

#include <gtest/gtest.h>

#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::fabric {
namespace {

constexpr std::string_view kGpuNode = R"(
  sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0/class = 0x030200
  sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0/numa_node = 1
  sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0/local_cpulist = 48-63,112-127
  sys/devices/pci0000:00/0000:03:00.0/class = 0x120000
  sys/devices/pci0000:00/0000:05:00.0/class = 0x068000
  sys/bus/pci/devices/0000:1b:00.0 -> ../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0
  sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:03:00.0
  sys/bus/pci/devices/0000:05:00.0 -> ../../../devices/pci0000:00/0000:05:00.0
  sys/bus/pci/drivers/nvidia/0000:1b:00.0/
  sys/bus/pci/drivers/nvidia/0000:05:00.0/
  sys/bus/pci/drivers/nvidia/bind = 1
  sys/bus/pci/drivers/nvidia/new_id.with.x:xx:yy.z = 1
  sys/bus/pci/drivers/amdgpu/0000:03:00.0/
  proc/driver/nvidia/gpus/0000:1b:00.0/information = Model: NVIDIA H100\nGPU UUID:   GPU-1234\nX: y
)";

TEST(Gpu, ReadsBothVendorsInPciOrder) {
  const test::FakeSysfs fake(kGpuNode);
  const auto gpus = read_gpus(fake.root());
  ASSERT_EQ(gpus.size(), 2U);  // 05:00.0 is a switch with NVIDIA's driver
  EXPECT_EQ(gpus[0].bus_address, "0000:03:00.0");
  EXPECT_EQ(gpus[0].driver, "amdgpu");
  EXPECT_EQ(gpus[0].uuid, "");
  EXPECT_FALSE(gpus[0].numa_node);
  EXPECT_EQ(gpus[1].uuid, "GPU-1234");
  EXPECT_EQ(gpus[1].local_cpus, "48-63,112-127");
  EXPECT_EQ(gpus[1].model, "NVIDIA H100");
  EXPECT_EQ(gpus[1].numa_node, 1);
  EXPECT_EQ(gpus[1].path, (PciPath{"pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:1b:00.0"}));
}

TEST(Gpu, SharedBridgesAreTheCommonPrefix) {
  const PciPath gpu{"pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:1b:00.0"};
  EXPECT_EQ(shared_bridges(gpu, {"pci0000:15", "0000:15:01.0", "0000:17:00.0"}), 2U);
  EXPECT_EQ(shared_bridges(gpu, {"pci0000:26", "0000:15:01.0"}), 0U);
  EXPECT_EQ(shared_bridges(gpu, {}), 0U);
  EXPECT_EQ(shared_bridges({}, {}), 0U);
}

TEST(Gpu, PathOfAnEndlessLinkIsUnknown) {
  std::string link = "sys/bus/pci/devices/0000:00:00.0 -> ../devices";
  for (int i = 0; i < 100; ++i) link += "/x";
  const test::FakeSysfs fake(link);
  EXPECT_TRUE(read_pci_path(fake.root() / "sys", "0000:00:00.0").empty());
}

}  // namespace
}  // namespace ddp::fabric
