// SPDX-License-Identifier: Apache-2.0
// The variables that the plan sets and keeps, and its warnings. Each section covers one kind of
// harm, such as overriding a site's file, or a job-wide constant.
#include "spank_plugin/fabric/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::Machine;
using test::machine_text;
using test::two_nodes;
using test::value_set;
using test::variables;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Node read(const std::string& machine, const std::string& more = "") {
  return Machine(machine_text(machine) + more).read();
}

Setting setting_of(const Plan& plan, const std::string& name) {
  const Setting* found = plan.find(name);
  return found == nullptr ? Setting{"none", "", "", "", false} : *found;
}

// --- given values are kept

TEST(Plan, UsersVariablesAreKept) {
  const Plan plan = make_plan(read("azure_nd_h100"), two_nodes("10.10.0.5"),
                              variables({{"NCCL_SOCKET_IFNAME", "ib0"},
                                         {"GLOO_SOCKET_IFNAME", "ib0"},
                                         {"NCCL_IB_HCA", "mlx5_ib"}}));
  const Setting nccl = setting_of(plan, "NCCL_SOCKET_IFNAME");
  EXPECT_EQ(nccl,
            (Setting{"NCCL_SOCKET_IFNAME", "ib0", "kept: the user set it", "environment", true}));
  EXPECT_TRUE(setting_of(plan, "GLOO_SOCKET_IFNAME").kept);
  EXPECT_TRUE(setting_of(plan, "NCCL_IB_HCA").kept);
  EXPECT_EQ(value_set(plan, "TP_SOCKET_IFNAME"), "eth0");
}

TEST(Plan, EmptyVariableCountsAsUnset) {
  const Plan plan =
      make_plan(read("cloud_vm"), two_nodes("10.0.0.4"), variables({{"GLOO_SOCKET_IFNAME", ""}}));
  EXPECT_EQ(value_set(plan, "GLOO_SOCKET_IFNAME"), "ens3");
}

TEST(Plan, ValuesOfNcclsFilesAreKept) {
  const Node node = read("dual_fabric",
                         "etc/nccl.conf = NCCL_IB_HCA==mlx5_0\\nNCCL_SOCKET_IFNAME=eno1\n"
                         "home/.nccl.conf = NCCL_IB_HCA==mlx5_1\n");
  const Plan plan = make_plan(node, two_nodes("10.5.0.30"), {});
  EXPECT_EQ(setting_of(plan, "NCCL_IB_HCA"),
            (Setting{"NCCL_IB_HCA", "=mlx5_1", "kept: a configuration file sets it", "~/.nccl.conf",
                     true}));
  EXPECT_EQ(setting_of(plan, "NCCL_SOCKET_IFNAME").source, "/etc/nccl.conf");
  const Plan other = make_plan(node, two_nodes("10.5.0.30"), variables({{"NCCL_IB_HCA", "mlx5"}}));
  EXPECT_EQ(setting_of(other, "NCCL_IB_HCA").value, "mlx5");
}

TEST(Plan, NcclConfFileTakesPrecedence) {
  const Machine machine(
      machine_text("dual_fabric") +
      "home/.nccl.conf = NCCL_IB_HCA==mlx5_1\nopt/nccl.conf = NCCL_IB_HCA==mlx5_2\n");
  const auto hca_with = [&](const std::filesystem::path& file) {
    const Node node =
        read_node({machine.root(), machine.root() / "home", file}, machine.addresses());
    return setting_of(make_plan(node, two_nodes("10.5.0.30"), {}), "NCCL_IB_HCA");
  };
  EXPECT_EQ(hca_with(machine.root() / "opt/nccl.conf").value, "=mlx5_2");
  EXPECT_EQ(hca_with(machine.root() / "opt/nccl.conf").source, "NCCL_CONF_FILE");
  const auto relative =
      std::filesystem::relative(machine.root() / "opt/nccl.conf", std::filesystem::current_path());
  EXPECT_EQ(hca_with(relative).value, "=mlx5_1");  // the step's directory is unknown here
}

TEST(Plan, OpenMpiNeverGetsBothLists) {
  const Node node = read("workstation");
  for (const auto* const own : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"}) {
    const Plan plan = make_plan(node, two_nodes("192.168.50.11"), variables({{own, "eno1"}}));
    EXPECT_TRUE(setting_of(plan, own).kept);
    EXPECT_EQ(value_set(plan, "OMPI_MCA_btl_tcp_if_include"), "");
    EXPECT_EQ(value_set(plan, "OMPI_MCA_btl_tcp_if_exclude"), "");
  }
  const Node by_file =
      read("workstation", "etc/openmpi/openmpi-mca-params.conf = btl_tcp_if_include = eno1\n");
  const Plan plan = make_plan(by_file, two_nodes("192.168.50.11"), {});
  EXPECT_EQ(setting_of(plan, "OMPI_MCA_btl_tcp_if_include").source,
            "/etc/openmpi/openmpi-mca-params.conf");
  EXPECT_EQ(value_set(plan, "OMPI_MCA_btl_tcp_if_exclude"), "");
}

TEST(Plan, OpenMpiIsNotLimitedToLoByAFile) {
  const Node by_file =
      read("workstation", "etc/openmpi/openmpi-mca-params.conf = btl_tcp_if_include = lo\n");
  const auto* const name = "OMPI_MCA_btl_tcp_if_include";
  const Plan plan = make_plan(by_file, two_nodes("192.168.50.11"), {});
  EXPECT_EQ(value_set(plan, name), plan.interface);
  EXPECT_EQ(value_set(plan, "OMPI_MCA_btl_tcp_if_exclude"), "");
  const Plan by_user = make_plan(by_file, two_nodes("192.168.50.11"), variables({{name, "lo"}}));
  EXPECT_TRUE(setting_of(by_user, name).kept);
}

TEST(Plan, SocketsCarryTheDataIfInfiniBandIsOff) {
  const Plan plan =
      make_plan(read("single_ib"), two_nodes("10.1.0.20"), variables({{"NCCL_IB_DISABLE", "1"}}));
  EXPECT_EQ(value_set(plan, "NCCL_SOCKET_IFNAME"), "");  // =eno1 would lose 7/8 of the bandwidth
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("NCCL starts with ib0"), HasSubstr("over TCP")));
}

// --- nodes where verbs cannot be used

TEST(Plan, MissingDeviceFilesDoNotMoveNcclToASlowNetwork) {
  const std::string closed = test::machine_text("dgx_a100") + "\ndev/infiniband/rdma_cm = \n";
  const Plan plan = make_plan(test::Machine(closed).read(), two_nodes("10.33.0.10"), {});
  EXPECT_NE(value_set(plan, "NCCL_SOCKET_IFNAME"), "=enp226s0");
  EXPECT_THAT(plan.warnings, testing::Contains(HasSubstr("/dev/infiniband/uverbs*")));
  EXPECT_EQ(
      value_set(make_plan(read("dgx_a100"), two_nodes("10.33.0.10"), {}), "NCCL_SOCKET_IFNAME"),
      "=enp226s0")
      << "only for bootstrap: InfiniBand carries the data";
}

TEST(Plan, SlowLeaderInterfaceIsNotForcedOnData) {
  Node node;
  test::add_interface(node, "eno1", "10.1.0.9/24").speed_mbps = 1000;
  test::add_interface(node, "ens1", "10.50.0.9/24").speed_mbps = 100'000;
  test::add_interface(node, "ens2", "10.51.0.9/24").speed_mbps = 100'000;
  test::add_route(node, "ens1", "10.50.0.0/24");
  test::add_route(node, "eno1", "10.1.0.0/24");
  EXPECT_EQ(value_set(make_plan(node, two_nodes("10.50.0.7"), {}), "NCCL_SOCKET_IFNAME"),
            "^docker,lo,virbr,veth,br-,eno1");
  EXPECT_THAT(make_plan(node, two_nodes("10.1.0.7"), {}).warnings,
              ElementsAre(HasSubstr("eno1 (1 Gb/s), while ens1 has 100 Gb/s")))
      << "and not to name eno1 as well";
  EXPECT_THAT(
      make_plan(node, two_nodes("10.1.0.7"), variables({{"NCCL_NET", "AWS Libfabric"}})).warnings,
      IsEmpty())
      << "the data takes another way";
  EXPECT_THAT(make_plan(node, two_nodes("10.1.0.7"), variables({{"NCCL_NET", "socket"}})).warnings,
              ElementsAre(HasSubstr("eno1 (1 Gb/s)")));
}

TEST(Plan, SlingshotIsDetectedWithAWarning) {
  const test::Machine machine("sys/class/cxi/cxi0/\nsys/class/cxi/cxi1/\n");
  const Plan plan = make_plan(machine.read(), two_nodes("10.1.0.7"), {});
  EXPECT_THAT(plan.summary, HasSubstr("fabric: 2 x cxi Slingshot"));
  EXPECT_THAT(plan.warnings, testing::Contains(HasSubstr("--ddp=fabric=slingshot")));
  EXPECT_THAT(
      make_plan(machine.read(), two_nodes("10.1.0.7"), variables({{"NCCL_NET", "AWS Libfabric"}}))
          .warnings,
      testing::Not(testing::Contains(HasSubstr("Slingshot"))));
  EXPECT_THAT(make_plan(machine.read(), {}, {}).warnings, IsEmpty()) << "one node";
}

// --- steps of one node

TEST(Plan, OneNodeSetsNothing) {
  for (const auto* const machine : {"dual_fabric", "workstation", "laptop", "roce_ipv6"}) {
    Request request;
    request.leader_addresses = {"127.0.0.1"};
    const Plan plan = make_plan(read(machine), request, {});
    EXPECT_THAT(plan.settings, IsEmpty()) << machine;
    EXPECT_THAT(plan.warnings, IsEmpty()) << machine;
    EXPECT_THAT(plan.summary, testing::EndsWith(", one node"));
  }
}

TEST(Plan, ReportsTheNodesAddressForListeners) {
  const Plan plan = make_plan(read("ipoib"), two_nodes("10.71.0.8"), {});
  EXPECT_EQ(plan.local_address, "10.71.0.9");
  EXPECT_EQ(make_plan(read("roce_ipv6"), two_nodes("2001:db8:0:1::50"), {}).local_address,
            "2001:db8:0:1::51");
}

// --- RoCE addresses

constexpr const char* kOldNccl = "etc/slurm-ddp/fabric.conf = nccl_version = 2.18\n";

TEST(Plan, OldNcclGetsTheGidIndexOfThisNode) {
  const Plan plan = make_plan(read("roce_ipv4", kOldNccl), two_nodes("10.0.8.40"), {});
  EXPECT_EQ(value_set(plan, "NCCL_IB_GID_INDEX"), "3");
  EXPECT_EQ(setting_of(plan, "NCCL_IB_GID_INDEX").source, "/etc/slurm-ddp/fabric.conf");
  // InfiniBand has no such index with any version of NCCL.
  EXPECT_EQ(value_set(make_plan(read("dgx_a100", kOldNccl), two_nodes("10.33.0.10"), {}),
                      "NCCL_IB_GID_INDEX"),
            "");
}

TEST(Plan, DifferentPortsCannotShareAGidIndex) {
  Node node;
  test::add_interface(node, "eth0", "10.0.0.2/24");
  test::add_gid(test::add_port(node, "mlx5_0", "Ethernet", 100), 3, "::ffff:10.0.0.2");
  test::add_gid(test::add_port(node, "mlx5_1", "Ethernet", 100), 5, "::ffff:10.0.1.2");
  node.site.nccl_version = NcclVersion{2, 20};
  const Plan plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_EQ(value_set(plan, "NCCL_IB_GID_INDEX"), "");
  EXPECT_THAT(plan.warnings,
              ElementsAre(HasSubstr("mlx5_1:1 has its RoCE v2 address at a different")));
  node.site.nccl_version = NcclVersion{2, 21};  // finds the entries itself
  EXPECT_THAT(make_plan(node, two_nodes("10.0.0.2"), {}).warnings, IsEmpty());
}

TEST(Plan, PortsOfBothFamiliesGiveAWarning) {
  Node node;
  test::add_interface(node, "eth0", "10.0.0.2/24");
  test::add_gid(test::add_port(node, "mlx5_0", "Ethernet", 100), 3, "::ffff:10.0.0.2");
  test::add_gid(test::add_port(node, "mlx5_1", "Ethernet", 100), 3, "2001:db8::1");
  Plan plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("one family for all")));
  EXPECT_EQ(value_set(plan, "NCCL_IB_ADDR_FAMILY"), "");
  node.ports[1].gids[0].address = "fe80::1";
  plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("mlx5_1:1 does not have a RoCE v2 address")));
  node.ports[0].gids[0].address = "fe80::2";
  plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_THAT(plan.warnings,
              ElementsAre(HasSubstr("mlx5_0:1, mlx5_1:1 do not have RoCE v2 addresses")));
}

TEST(Plan, IwarpGivesAWarningInsteadOfAnEmptyList) {
  Node node;
  test::add_interface(node, "eth0", "10.0.0.2/24");
  test::add_port(node, "irdma0", "Ethernet", 100).node_type = "RNIC";
  const Plan plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_EQ(plan.find("NCCL_IB_HCA"), nullptr);
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("iWARP, which NCCL cannot use")));
}

TEST(Plan, ManyPortsThatAreLeftOutAreCounted) {
  Node node;
  test::add_interface(node, "eth0", "10.0.0.2/24");
  test::add_port(node, "mlx5_0", "InfiniBand", 400);
  for (int i = 1; i < 8; ++i) {
    test::add_port(node, "mlx5_" + std::to_string(i), "InfiniBand", 50);
  }
  const Plan plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_EQ(setting_of(plan, "NCCL_IB_HCA").rule,
            "without mlx5_1:1, mlx5_2:1, mlx5_3:1, mlx5_4:1 and 3 more (less than half the rate)");
}

TEST(Plan, DoubtfulPortsAreNamedInANote) {
  const Plan plan = make_plan(read("dgx_a100"), two_nodes("10.33.0.10"), {});
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("mlx5_4:1, mlx5_5:1 (far from every GPU)")));
}

TEST(Plan, HiddenGidTypesDecideNothing) {
  Node node;
  test::add_interface(node, "eth0", "10.0.0.2/24");
  test::add_gid(test::add_port(node, "mlx5_0", "Ethernet", 100), 3, "2001:db8::1", "");
  const Plan plan = make_plan(node, two_nodes("10.0.0.2"), {});
  EXPECT_EQ(value_set(plan, "NCCL_IB_ADDR_FAMILY"), "");
  EXPECT_THAT(plan.warnings, IsEmpty());
}

// --- UCX

TEST(Plan, UcxIsBoundOnlyOnRequestAndIfPortsTie) {
  Request request = two_nodes("10.33.0.10");
  request.gpu = "1";
  EXPECT_EQ(value_set(make_plan(read("dgx_a100"), request, {}), "UCX_NET_DEVICES"), "");
  request.bind_ucx = true;
  EXPECT_EQ(value_set(make_plan(read("dgx_a100"), request, {}), "UCX_NET_DEVICES"), "mlx5_1:1");
  request.gpu = "GPU-a100-0000-0007";
  EXPECT_EQ(value_set(make_plan(read("dgx_a100"), request, {}), "UCX_NET_DEVICES"), "mlx5_9:1");
  request.gpu = "9";
  EXPECT_EQ(value_set(make_plan(read("dgx_a100"), request, {}), "UCX_NET_DEVICES"), "");
  request.gpu = "1";
  request.leader_addresses = {"100.126.0.10"};
  EXPECT_EQ(value_set(make_plan(read("dgx_h100"), request, {}), "UCX_NET_DEVICES"), "");
  const Plan kept =
      make_plan(read("dgx_a100"), request, variables({{"UCX_NET_DEVICES", "mlx5_0:1"}}));
  EXPECT_TRUE(setting_of(kept, "UCX_NET_DEVICES").kept);
}

TEST(Plan, UcxIsBoundAtTheSitesRequest) {
  Request request = two_nodes("10.33.0.10");
  request.gpu = "0";
  const Node node = read("dgx_a100", "etc/slurm-ddp/fabric.conf = ucx = bind\n");
  EXPECT_EQ(value_set(make_plan(node, request, {}), "UCX_NET_DEVICES"), "mlx5_0:1");
}

// --- presets and the site's file

Plan with_preset(const Node& node, const std::string& leader, const std::string& preset) {
  Request request = two_nodes(leader);
  request.preset = preset;
  return make_plan(node, request, {});
}

TEST(Plan, PresetOverridesDerivedValues) {
  const Plan plan = with_preset(read("efa_p4d"), "10.1.0.70", "efa");
  const Setting set = setting_of(plan, "NCCL_SOCKET_IFNAME");
  EXPECT_EQ(set.value, "^docker,lo,veth");
  EXPECT_EQ(set.rule, "preset efa");
  EXPECT_THAT(set.source, HasSubstr("awsome-distributed-training"));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(Plan, UserOverridesAPreset) {
  Request request = two_nodes("10.1.0.70");
  request.preset = "efa";
  const Plan plan =
      make_plan(read("efa_p4d"), request, variables({{"NCCL_SOCKET_IFNAME", "=ens32"}}));
  EXPECT_TRUE(setting_of(plan, "NCCL_SOCKET_IFNAME").kept);
}

TEST(Plan, PresetKeepsTheImagesOwnFile) {
  const Plan plan = with_preset(read("azure_nd_h100"), "10.10.0.5", "azure-ndv5");
  EXPECT_EQ(setting_of(plan, "NCCL_TOPO_FILE").source, "/etc/nccl.conf");
  EXPECT_EQ(value_set(plan, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(value_set(plan, "NCCL_SOCKET_IFNAME"), "=eth0");
}

TEST(Plan, ImpossibleValuesOfAPresetAreLeftOut) {
  const Plan azure = with_preset(read("dgx_h100"), "100.126.0.10", "azure-ndv5");
  EXPECT_THAT(azure.warnings,
              ElementsAre(HasSubstr("NCCL_SOCKET_IFNAME==eth0 is left out, since no running"),
                          HasSubstr("NCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml is left out")));
  EXPECT_EQ(azure.find("NCCL_SOCKET_IFNAME"), nullptr);
  Request kept = two_nodes("100.126.0.10");  // the user sets both values left out above
  kept.preset = "azure-ndv5";
  EXPECT_THAT(make_plan(read("dgx_h100"), kept,
                        variables({{"NCCL_SOCKET_IFNAME", "=ibp24s0"}, {"NCCL_TOPO_FILE", "/x"}}))
                  .warnings,
              IsEmpty());
  const Plan oci = with_preset(read("roce_ipv6"), "2001:db8:0:1::50", "oci-roce");
  EXPECT_THAT(oci.warnings, IsEmpty());
  EXPECT_EQ(value_set(oci, "NCCL_IB_GID_INDEX"), "3");  // IPv6, and RoCE v2
  Node other = read("roce_ipv4");
  other.ports[5].gids.erase(other.ports[5].gids.begin() + 3);
  EXPECT_THAT(
      with_preset(other, "10.0.8.40", "oci-roce").warnings,
      ElementsAre(HasSubstr("NCCL_IB_GID_INDEX=3 is left out, since that entry of mlx5_5:1"),
                  HasSubstr("mlx5_5:1 does not have a RoCE v2 address")));
}

TEST(Plan, UnknownPresetIsAnError) {
  EXPECT_THAT([&] { with_preset(read("cloud_vm"), "10.0.0.4", "eva"); },
              testing::ThrowsMessage<FabricError>(
                  HasSubstr("unknown fabric preset 'eva': known presets are efa, ")));
}

TEST(Plan, SitesPresetAppliesUnlessAnotherIsRequested) {
  const Node node = read("roce_ipv4",
                         "etc/slurm-ddp/fabric.conf = preset = rack7\\n[preset rack7]\\n"
                         "NCCL_IB_TC = 106\n");
  EXPECT_EQ(value_set(make_plan(node, two_nodes("10.0.8.40"), {}), "NCCL_IB_TC"), "106");
  EXPECT_EQ(with_preset(node, "10.0.8.40", "none").find("NCCL_IB_TC"), nullptr);
  EXPECT_EQ(value_set(with_preset(node, "10.0.8.40", "oci-roce"), "NCCL_IB_TC"), "41");
}

TEST(Plan, SitesPortListIsUsedIfItMatches) {
  const Node node = read("roce_ipv4", "etc/slurm-ddp/fabric.conf = ib_hca = mlx5_0:1,mlx5_1:1\n");
  EXPECT_EQ(value_set(make_plan(node, two_nodes("10.0.8.40"), {}), "NCCL_IB_HCA"),
            "=mlx5_0:1,mlx5_1:1");
  const Node other = read("dual_fabric", "etc/slurm-ddp/fabric.conf = ib_hca = mlx5_17\n");
  const Plan plan = make_plan(other, two_nodes("10.5.0.30"), {});
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("ib_hca mlx5_17")));
  EXPECT_EQ(value_set(plan, "NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1");
}

TEST(Plan, ErrorInTheSiteFileIsAWarningAndTheFileIsNotUsed) {
  const Node node = read("cloud_vm", "etc/slurm-ddp/fabric.conf = preset = efa\\ncolor = red\n");
  const Plan plan = make_plan(node, two_nodes("10.0.0.4"), {});
  EXPECT_THAT(plan.warnings,
              ElementsAre(HasSubstr("fabric.conf: line 2 has the unknown key 'color'")));
  EXPECT_EQ(plan.find("NCCL_SOCKET_IFNAME"), nullptr);
  std::string long_file = "etc/slurm-ddp/fabric.conf = #";
  long_file.append(70'000, 'x');
  const Node large = read("cloud_vm", long_file);
  EXPECT_THAT(large.problems, ElementsAre(HasSubstr("larger than 64 KiB")));
}

// --- all machines

constexpr std::array<const char*, 17> kMachines{
    "azure_nd_h100", "bonded",    "cloud_vm", "container", "dgx_a100",    "dgx_h100",
    "dual_fabric",   "efa_p4d",   "ipoib",    "laptop",    "recorded_vm", "roce_ipv4",
    "roce_ipv6",     "single_ib", "two_nics", "vlan",      "workstation"};

// Without a preset the plan sets only these variables, and none for tuning, debugging or the
// loader.
TEST(Plan, SetsOnlyInterfacesPortsAndAddresses) {
  const std::set<std::string> allowed{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
                                      "TP_SOCKET_IFNAME",   "NCCL_IB_HCA",
                                      "NCCL_IB_GID_INDEX",  "NCCL_IB_ADDR_FAMILY",
                                      "UCX_NET_DEVICES",    "OMPI_MCA_btl_tcp_if_exclude"};
  for (const auto* const machine : kMachines) {
    for (const auto* const more : {"", kOldNccl}) {
      const Node node = read(machine, more);
      for (const auto* const leader :
           {"10.0.0.1", "10.33.0.10", "172.17.0.1", "127.0.0.1", "::1"}) {
        Request request = two_nodes(leader);
        request.bind_ucx = true;
        request.gpu.emplace("0");
        for (const auto& setting : make_plan(node, request, {}).settings) {
          EXPECT_TRUE(allowed.contains(setting.name) || setting.kept) << machine << setting.name;
        }
      }
    }
  }
}

// NCCL fails without an interface, so a value that matches none on this node would fail the job.
TEST(Plan, NeverSetsAMissingInterface) {
  for (const auto* const machine : kMachines) {
    const Node node = read(machine);
    for (const auto& entry : node.addresses) {
      const Plan plan = make_plan(node, two_nodes(to_string(entry.address)), {});
      for (const auto* const name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
        const std::string value = value_set(plan, name);
        EXPECT_TRUE(value.empty() || node.interface(value) != nullptr) << machine << value;
      }
      const std::string nccl = value_set(plan, "NCCL_SOCKET_IFNAME");
      const Plan again = make_plan(node, two_nodes(to_string(entry.address)),
                                   variables({{"NCCL_SOCKET_IFNAME", nccl}}));
      for (const auto& warning : again.warnings) {
        EXPECT_THAT(warning, testing::Not(HasSubstr("no running interface"))) << machine << nccl;
        EXPECT_THAT(warning, testing::Not(HasSubstr("loopback matches"))) << machine << nccl;
      }
    }
  }
}

// A second plan that takes the first plan's variables as the user's changes nothing.
TEST(Plan, IsStable) {
  for (const auto* const machine : kMachines) {
    const Node node = read(machine);
    const Request request = two_nodes(to_string(node.addresses.back().address));
    const Plan first = make_plan(node, request, {});
    std::map<std::string, std::string> set;
    for (const auto& setting : first.settings) set[setting.name] = setting.value;
    const Plan second = make_plan(node, request, variables(set));
    for (const auto& setting : second.settings) {
      EXPECT_TRUE(setting.kept) << machine << " " << setting.name;
      EXPECT_EQ(setting.value, set[setting.name]) << machine;
    }
  }
}

}  // namespace
}  // namespace ddp::fabric
