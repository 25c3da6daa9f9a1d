// SPDX-License-Identifier: Apache-2.0
// Decisions for whole nodes. All machines except recorded_vm are built from public descriptions.
// The table lists all variables of each plan, so that an extra one fails the test, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "spank_plugin/fabric/plan/plan.h"
#include "tests/unit/fabric/machine.h"

namespace ddp::fabric {
namespace {

using Variables = std::map<std::string, std::string>;

struct Case {
  std::string name;
  std::string machine;
  std::string leader;  // MASTER_ADDR's address; empty if not looked up
  std::string interface;
  Variables settings;
  std::string summary;
  std::string warning;  // part of the only warning; empty if there is none
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// The settings of every node in a step of several nodes: the interface for the two libraries that
// do not detect it.
Variables on(const std::string& interface, const Variables& others = {}) {
  Variables all{{"GLOO_SOCKET_IFNAME", interface}, {"TP_SOCKET_IFNAME", interface}};
  all.insert(others.begin(), others.end());
  return all;
}

class MachineDecision : public testing::TestWithParam<Case> {};

TEST_P(MachineDecision, MatchesTheTable) {
  const Case& expected = GetParam();
  const test::Machine machine(test::machine_text(expected.machine));
  Request request;
  request.node_count = 2;
  if (!expected.leader.empty()) request.leader_addresses = {expected.leader};
  const Plan plan = make_plan(machine.read(), request, {});
  Variables set;
  for (const auto& setting : plan.settings) {
    EXPECT_FALSE(setting.kept) << setting.name;
    EXPECT_NE(setting.rule, "") << setting.name;
    EXPECT_NE(setting.source, "") << setting.name;
    set[setting.name] = setting.value;
  }
  EXPECT_EQ(set, expected.settings);
  EXPECT_EQ(plan.interface, expected.interface);
  EXPECT_EQ(plan.summary, expected.summary);
  if (expected.warning.empty()) {
    EXPECT_THAT(plan.warnings, testing::IsEmpty());
  } else {
    EXPECT_THAT(plan.warnings, testing::ElementsAre(testing::HasSubstr(expected.warning)));
  }
}

const std::vector<Case>& machines() {
  static const std::vector<Case> kCases{
      // NCCL chooses among the ten ports of one kind by distance. It would bootstrap on the first
      // IPoIB interface.
      {"dgx_a100", "dgx_a100", "10.33.0.10", "enp226s0",
       on("enp226s0", {{"NCCL_SOCKET_IFNAME", "=enp226s0"},
                       {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,docker0"}}),
       "fabric: 10 x mlx5 200 Gb/s InfiniBand, leader through enp226s0 (1 Gb/s)", ""},
      {"dgx_a100_as_leader", "dgx_a100", "10.33.0.11", "enp226s0",
       on("enp226s0", {{"NCCL_SOCKET_IFNAME", "=enp226s0"},
                       {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,docker0"}}),
       "fabric: 10 x mlx5 200 Gb/s InfiniBand, leader through enp226s0 (1 Gb/s)", ""},
      // The host names resolve to IPoIB, as NCCL expects; the storage ports belong to another
      // fabric.
      {"dgx_h100", "dgx_h100", "100.126.0.10", "ibp24s0",
       on("ibp24s0",
          {{"NCCL_IB_HCA",
            "=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1"},
           {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,docker0"}}),
       "fabric: 8 x mlx5 400 Gb/s InfiniBand, leader through ibp24s0 (400 Gb/s)", ""},
      {"single_ib", "single_ib", "10.1.0.20", "eno1", on("eno1", {{"NCCL_SOCKET_IFNAME", "=eno1"}}),
       "fabric: 1 x mlx5 200 Gb/s InfiniBand, leader through eno1 (25 Gb/s)", ""},
      {"single_ib_over_ipoib", "single_ib", "10.2.0.20", "ib0", on("ib0"),
       "fabric: 1 x mlx5 200 Gb/s InfiniBand, leader through ib0 (200 Gb/s)", ""},
      {"dual_fabric", "dual_fabric", "10.5.0.30", "eno1",
       on("eno1", {{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"},
                   {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,docker0"}}),
       "fabric: 4 x mlx5 400 Gb/s InfiniBand, leader through eno1 (10 Gb/s)", ""},
      {"roce_ipv4", "roce_ipv4", "10.0.8.40", "eth0", on("eth0"),
       "fabric: 8 x mlx5 400 Gb/s RoCE, leader through eth0 (25 Gb/s)", ""},
      {"roce_ipv6", "roce_ipv6", "2001:db8:0:1::50", "enp66s0np0",
       on("enp66s0np0",
          {{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_SOCKET_IFNAME", "=enp66s0np0"}}),
       "fabric: 2 x bnxt 200 Gb/s RoCE, leader through enp66s0np0 (200 Gb/s)", ""},
      // The host names resolve to the management network, and the DPUs' ports do not belong to the
      // compute fabric.
      {"gb200", "gb200", "10.1.0.70", "enP5p9s0",
       on("enP5p9s0", {{"NCCL_IB_HCA", "=rocep0:1,rocep1:1,rocep2:1,rocep3:1"}}),
       "fabric: 4 x mlx5 400 Gb/s RoCE, leader through enP5p9s0 (1 Gb/s)", ""},
      {"efa_p4d", "efa_p4d", "10.1.0.70", "ens32",
       on("ens32", {{"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,docker0"}}),
       "fabric: 4 x efa 100 Gb/s EFA, leader through ens32", ""},
      {"azure_nd_h100", "azure_nd_h100", "10.10.0.5", "eth0",
       on("eth0", {{"NCCL_IB_HCA",
                    "=mlx5_ib0:1,mlx5_ib1:1,mlx5_ib2:1,mlx5_ib3:1,mlx5_ib4:1,mlx5_ib5:1,mlx5_ib6:1,"
                    "mlx5_ib7:1"},
                   {"NCCL_SOCKET_IFNAME", "=eth0"}}),
       "fabric: 8 x mlx5 400 Gb/s InfiniBand, leader through eth0 (100 Gb/s)", ""},
      {"cloud_vm", "cloud_vm", "10.0.0.4", "ens3", on("ens3"),
       "fabric: no RDMA, leader through ens3", ""},
      {"cloud_vm_in_another_subnet", "cloud_vm", "192.0.2.7", "ens3", on("ens3"),
       "fabric: no RDMA, leader through ens3", ""},
      {"cloud_vm_unknown_leader", "cloud_vm", "", "ens3", on("ens3"),
       "fabric: no RDMA, leader through ens3", ""},
      {"workstation", "workstation", "192.168.50.11", "eno1",
       on("eno1", {{"NCCL_SOCKET_IFNAME", "=eno1"},
                   {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,wlp4s0,docker0,tun0"},
                   {"UCX_NET_DEVICES", "eno1"}}),
       "fabric: no RDMA, leader through eno1 (10 Gb/s)", ""},
      {"workstation_over_vpn", "workstation", "10.99.4.5", "tun0",
       on("tun0", {{"NCCL_SOCKET_IFNAME", "=tun0"},
                   {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,wlp4s0,docker0"},
                   {"UCX_NET_DEVICES", "tun0"}}),
       "fabric: no RDMA, leader through tun0", "reached through tun0 (tun)"},
      {"laptop", "laptop", "192.168.178.20", "wlp0s20f3",
       on("wlp0s20f3", {{"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,virbr0"},
                        {"UCX_NET_DEVICES", "wlp0s20f3"}}),
       "fabric: no RDMA, leader through wlp0s20f3", "reached through wlp0s20f3 (wireless)"},
      {"laptop_unknown_leader",
       "laptop",
       "",
       "",
       {},
       "fabric: no RDMA, route to the leader unknown",
       "is unknown on this node"},
      {"bonded", "bonded", "10.40.0.2", "bond0", on("bond0"),
       "fabric: no RDMA, leader through bond0 (50 Gb/s)", ""},
      // The management interface is slower and comes first.
      {"vlan", "vlan", "10.60.0.8", "ens1.100",
       on("ens1.100", {{"NCCL_SOCKET_IFNAME", "=ens1.100"}}),
       "fabric: no RDMA, leader through ens1.100 (100 Gb/s)", ""},
      {"ipoib", "ipoib", "10.71.0.8", "ib0.8001",
       on("ib0.8001", {{"NCCL_SOCKET_IFNAME", "=ib0.8001"}}),
       "fabric: 1 x mlx5 100 Gb/s InfiniBand, leader through ib0.8001 (100 Gb/s)", ""},
      {"container", "container", "10.88.0.1", "eth0", on("eth0"),
       "fabric: no RDMA, leader through eth0", ""},
      {"recorded_vm", "recorded_vm", "192.0.2.7", "eth0",
       on("eth0", {{"NCCL_SOCKET_IFNAME", "=eth0"},
                   {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,ctbr0,ctv1,ctv2"},
                   {"UCX_NET_DEVICES", "eth0"}}),
       "fabric: no RDMA, leader through eth0", ""},
      // Both fast ports stay, because naming one would halve the bandwidth.
      {"two_nics", "two_nics", "10.50.0.3", "ens1",
       on("ens1", {{"NCCL_SOCKET_IFNAME", "^docker,lo,virbr,veth,br-,eno1,cali12ab"},
                   {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,br-5f2c1a9b3d4e,cali12ab"},
                   {"UCX_NET_DEVICES", "ens1,ens2"}}),
       "fabric: no RDMA, leader through ens1 (100 Gb/s)", ""},
  };
  return kCases;
}

INSTANTIATE_TEST_SUITE_P(Table, MachineDecision, testing::ValuesIn(machines()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ddp::fabric
