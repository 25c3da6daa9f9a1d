// SPDX-License-Identifier: Apache-2.0
// Tests which RDMA ports a task measures, on fake trees of machines of known kinds.
#include "ddp_runtime/check/net/measure/own_rdma.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/environment_of.h"
#include "tests/unit/fabric/machine.h"

namespace ddp::check {
namespace {

RdmaTool rdma_of(const std::string& text, const Variables& variables = {},
                 const std::vector<std::string>& wanted = {}) {
  const test::Machine machine(text);
  return find_rdma(machine.read(), environment_of(variables), {"ib_write_bw", wanted});
}

// "mlx5_0:1 gid 3, mlx5_1:1"
std::string text_of(const RdmaTool& tool) {
  std::string text;
  for (const auto& own : tool.ports) {
    text += (text.empty() ? "" : ", ") + own.port.name;
    if (own.gid_index) text += fmt::format(" gid {}", *own.gid_index);
  }
  return text;
}

// A port in slot `bus` whose only RoCE v2 address, if it is not empty, is entry 3.
std::string port_text(const std::string& device, const std::string& bus, const std::string& layer,
                      const std::string& address = "") {
  const std::string path = fmt::format("pci0000:{0}/0000:{0}:00.0", bus);
  const std::string port = fmt::format("sys/class/infiniband/{}/ports/1", device);
  std::string text =
      fmt::format("sys/class/infiniband/{}/device -> ../../../devices/{}\n", device, path);
  text += fmt::format("{}/state = 4: ACTIVE\n{}/link_layer = {}\n", port, port, layer);
  text += fmt::format("{}/rate = 200 Gb/sec (4X HDR)\n", port);
  if (layer != "Ethernet") return text;
  const std::string local = "fe80:0000:0000:0000:0000:0000:0000:0001";
  text += fmt::format("{}/gids/0 = {}\n{}/gid_attrs/types/0 = RoCE v2\n", port, local, port);
  if (address.empty()) return text;
  return text +
         fmt::format("{}/gids/3 = {}\n{}/gid_attrs/types/3 = RoCE v2\n", port, address, port);
}

const std::string kAddress = "0000:0000:0000:0000:0000:ffff:0a00:0001";

TEST(OwnRdma, MeasuresThePortsOfTheComputeFabricOnly) {
  EXPECT_EQ(text_of(rdma_of(test::machine_text("azure_nd_h100"))),
            "mlx5_ib0:1, mlx5_ib1:1, mlx5_ib2:1, mlx5_ib3:1, mlx5_ib4:1, mlx5_ib5:1, mlx5_ib6:1, "
            "mlx5_ib7:1");
  EXPECT_EQ(text_of(rdma_of(test::machine_text("laptop"))), "");
}

TEST(OwnRdma, FollowsThePciOrderWithRatesAndAddresses) {
  const auto tool = rdma_of(port_text("b", "10", "Ethernet", kAddress) +
                            port_text("a", "20", "Ethernet", kAddress));
  EXPECT_EQ(text_of(tool), "b:1 gid 3, a:1 gid 3");
  EXPECT_EQ(tool.ports[1].port.bus_address, "0000:20:00.0");
  EXPECT_EQ(tool.ports[1].port.bytes_per_second, 25e9);
}

TEST(OwnRdma, FollowsTheChoiceOfPortsAndAddressesForNccl) {
  const std::string text = port_text("m0", "10", "Ethernet", kAddress) +
                           port_text("m1", "20", "Ethernet", kAddress) +
                           port_text("m2", "30", "Ethernet", kAddress);
  EXPECT_EQ(text_of(rdma_of(text, {{"NCCL_IB_HCA", "^=m1"}})), "m0:1 gid 3, m2:1 gid 3");
  EXPECT_EQ(text_of(rdma_of(text, {{"NCCL_IB_HCA", "nothing"}})),
            "m0:1 gid 3, m1:1 gid 3, m2:1 gid 3");
  EXPECT_EQ(text_of(rdma_of(text + "etc/nccl.conf = NCCL_IB_HCA==m2\n")), "m2:1 gid 3");
  EXPECT_EQ(text_of(rdma_of(text, {{"NCCL_IB_HCA", "=m1"}, {"NCCL_IB_GID_INDEX", "1"}})),
            "m1:1 gid 1");
}

TEST(OwnRdma, TheUsersPortsAreTakenInTheirOrder) {
  const std::string text =
      port_text("m0", "10", "InfiniBand") + port_text("m1", "20", "InfiniBand");
  EXPECT_EQ(text_of(rdma_of(text, {}, {"m1:1", "fake_0:1"})), "m1:1, fake_0:1");
  EXPECT_EQ(text_of(rdma_of(text, {}, {"m1"})), "m1:1");
}

TEST(OwnRdma, PortsThatTheToolCannotConnectAreToldAndNotMeasured) {
  const auto efa = rdma_of(test::machine_text("efa_p4d"));
  EXPECT_TRUE(efa.ports.empty());
  EXPECT_EQ(efa.untested,
            "EFA lacks the reliable connections (RC) that ib_write_bw needs (rdmap144s27:1 "
            "rdmap160s27:1 rdmap16s27:1 rdmap32s27:1)");
  const auto untested = [](const char* type) {
    return rdma_of(port_text("m2", "30", "Ethernet", kAddress) +
                   "sys/class/infiniband/m2/node_type = " + type + "\n")
        .untested;
  };
  EXPECT_EQ(untested("4: RNIC"), "ib_write_bw cannot connect iWARP ports (m2:1)");
  EXPECT_EQ(untested("5: usNIC"), "ib_write_bw cannot connect usNIC ports (m2:1)");
  EXPECT_EQ(untested("6: usNIC UDP"), "ib_write_bw cannot connect usNIC ports (m2:1)");
  const auto mixed =
      rdma_of(port_text("m0", "10", "Ethernet", kAddress) + port_text("m1", "20", "Ethernet"),
              {{"NCCL_IB_HCA", "m"}});
  EXPECT_EQ(text_of(mixed), "m0:1 gid 3");
  EXPECT_EQ(mixed.untested, "no RoCE address that other nodes can reach (m1:1)");
}

TEST(OwnRdma, TextAboutPortsIsShort) {
  std::string text;
  for (int i = 10; i < 60; ++i) {
    text += port_text(fmt::format("m{}", i), std::to_string(i), "Ethernet");
  }
  EXPECT_EQ(rdma_of(text).untested,
            "no RoCE address that other nodes can reach (m10:1 m11:1 m12:1 m13:1 and 46 more)");
}

TEST(OwnRdma, PortWithARoceV1AddressOnlyIsMeasuredWithTheToolsOwnChoice) {
  const std::string text = port_text("m0", "10", "Ethernet") +
                           "sys/class/infiniband/m0/ports/1/gids/1 = " + kAddress +
                           "\nsys/class/infiniband/m0/ports/1/gid_attrs/types/1 = IB/RoCE v1\n";
  EXPECT_EQ(text_of(rdma_of(text)), "m0:1");
}

TEST(OwnRdma, AtMostAsManyPortsAsAHelloHolds) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(fmt::format("m{}:1", i));
  EXPECT_EQ(rdma_of("", {}, names).ports.size(), kMaxRdmaPorts);
}

TEST(OwnRdma, NothingRunsWithoutAPortOrTheProgram) {
  EXPECT_FALSE((RdmaTool{.program = "/bin/sh"}).runnable());
  EXPECT_FALSE((RdmaTool{"no_such_tool", {{{"m0:1", "", {}}}}}).runnable());
  EXPECT_TRUE((RdmaTool{"/bin/sh", {{{"m0:1", "", {}}}}}).runnable());
}

}  // namespace
}  // namespace ddp::check
