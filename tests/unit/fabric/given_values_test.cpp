// SPDX-License-Identifier: Apache-2.0
// Warnings of harmful values from the user or a file, which the plan keeps: left over from
// debugging, copied from another cluster, or not what NCCL reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "spank_plugin/fabric/plan/plan.h"
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

struct Leftover {
  std::string machine, leader, name, value, warning;
};

void PrintTo(const Leftover& leftover, std::ostream* out) {
  *out << leftover.machine << " " << leftover.name << "=" << leftover.value;
}

class GivenValue : public testing::TestWithParam<Leftover> {};

TEST_P(GivenValue, GivesAWarningAndIsKept) {
  const auto& [machine, leader, name, value, warning] = GetParam();
  const Plan plan = make_plan(Machine(machine_text(machine)).read(), two_nodes(leader),
                              variables({{name, value}}));
  EXPECT_EQ(value_set(plan, name), "");
  if (warning.empty()) {
    EXPECT_THAT(plan.warnings, IsEmpty());
  } else {
    EXPECT_THAT(plan.warnings,
                ElementsAre(testing::AllOf(testing::StartsWith(name + "='" + value.substr(0, 40)),
                                           HasSubstr(warning))));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Debugging, GivenValue,
    testing::Values(
        Leftover{"single_ib", "10.1.0.20", "NCCL_DEBUG", "TRACE", "left over in your shell?"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_DEBUG", "INFO", ""},
        Leftover{"single_ib", "10.2.0.20", "NCCL_IB_DISABLE", "1", "goes over TCP"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_IB_DISABLE", "0x0", ""},
        Leftover{"single_ib", "10.1.0.20", "NCCL_IB_DISABLE", "true", "so nothing is disabled"},
        Leftover{"cloud_vm", "10.0.0.4", "NCCL_IB_DISABLE", "1", ""},  // it has no RDMA
        Leftover{"single_ib", "10.1.0.20", "NCCL_NVLS_ENABLE", "true", "so NVLink's reductions"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_NVLS_ENABLE", "1", ""},
        Leftover{"single_ib", "10.1.0.20", "NCCL_P2P_DISABLE", "1", "host's memory"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_SHM_DISABLE", "1", "over the network"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_ALGO", "Ring", "no longer chooses"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_PROTO", "LL128", "corrupts data"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_NSOCKS_PERTHREAD", "4",
                 "differs between networks"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_BUFFSIZE", "8388608", "differs between fabrics"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_NET_GDR_LEVEL", "SYS", "across CPUs"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_NET_GDR_LEVEL", "5", "across CPUs"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_NET_GDR_LEVEL", "PIX", ""},
        Leftover{"single_ib", "10.1.0.20", "NCCL_IB_TIMEOUT", "22", "minutes later"},
        Leftover{"single_ib", "10.1.0.20", "NCCL_IB_TIMEOUT", "20", ""},
        Leftover{"single_ib", "10.1.0.20", "CUDA_LAUNCH_BLOCKING", "1", "no longer overlaps"},
        Leftover{"single_ib", "10.1.0.20", "TORCH_DISTRIBUTED_DEBUG", "DETAIL", "all ranks first"},
        Leftover{"single_ib", "10.1.0.20", "UCX_TLS", "tcp", "although there is RDMA"},
        Leftover{"single_ib", "10.1.0.20", "UCX_TLS", "rc,tcp", ""},
        Leftover{"single_ib", "10.1.0.20", "UCX_TLS", "^tcp", ""},
        Leftover{"cloud_vm", "10.0.0.4", "UCX_TLS", "tcp", ""}));

INSTANTIATE_TEST_SUITE_P(
    Interfaces, GivenValue,
    testing::Values(
        // NCCL fails without an interface, and AWS's recipe for another image leaves none here.
        Leftover{"container", "10.88.0.1", "NCCL_SOCKET_IFNAME", "^docker,lo,veth,eth",
                 "no running interface of this node matches"},
        Leftover{"efa_p4d", "10.1.0.70", "NCCL_SOCKET_IFNAME", "eth0", "no running interface"},
        Leftover{"efa_p4d", "10.1.0.70", "NCCL_SOCKET_IFNAME", "ens", ""},
        Leftover{"efa_p4d", "10.1.0.70", "NCCL_SOCKET_IFNAME", "^docker0", "exclude lo too"},
        Leftover{"efa_p4d", "10.1.0.70", "NCCL_SOCKET_IFNAME", "ens3, ens6",
                 "part of a name (' ens6'): it will use ens32"},
        Leftover{"efa_p4d", "10.1.0.70", "NCCL_SOCKET_IFNAME", " ens32",
                 "part of a name (' ens32'): no running interface"},
        Leftover{"efa_p4d", "10.1.0.70", "NCCL_SOCKET_IFNAME", "x", ""},  // NCCL ignores it
        Leftover{"efa_p4d", "10.1.0.70", "GLOO_SOCKET_IFNAME", "^docker0", "not ^, ="},
        Leftover{"efa_p4d", "10.1.0.70", "GLOO_SOCKET_IFNAME", "=ens32", "not ^, ="},
        Leftover{"efa_p4d", "10.1.0.70", "GLOO_SOCKET_IFNAME", "ens65,ens32", ""},
        Leftover{"efa_p4d", "10.1.0.70", "TP_SOCKET_IFNAME", "eth9",
                 "does not have an interface of that name"}));

INSTANTIATE_TEST_SUITE_P(
    Ports, GivenValue,
    testing::Values(
        Leftover{"dgx_h100", "100.126.0.10", "NCCL_IB_HCA", "mlx5_1", "mlx5_1 matches mlx5_10 too"},
        Leftover{"dgx_h100", "100.126.0.10", "NCCL_IB_HCA", "=mlx5_1", ""},
        Leftover{"dgx_h100", "100.126.0.10", "NCCL_IB_HCA", "mlx5", ""},
        Leftover{"dgx_h100", "100.126.0.10", "NCCL_IB_HCA", "bnxt", "no active port"},
        Leftover{"dgx_h100", "100.126.0.10", "NCCL_IB_HCA", "=mlx5_0:1 , mlx5_4",
                 "part of a name (' mlx5_4'): it will use mlx5_0:1"},
        Leftover{"dgx_h100", "100.126.0.10", "NCCL_IB_HCA", " mlx5_0",
                 "part of a name (' mlx5_0'): no active port"},
        Leftover{"cloud_vm", "10.0.0.4", "NCCL_IB_HCA", "mlx5", ""},
        Leftover{"single_ib", "10.1.0.20", "NCCL_IB_GID_INDEX", "3", "mlx5_0:1 is InfiniBand"},
        Leftover{"roce_ipv4", "10.0.8.40", "NCCL_IB_GID_INDEX", "3", ""},
        Leftover{"roce_ipv4", "10.0.8.40", "NCCL_IB_GID_INDEX", "0", "is not a RoCE v2 address"},
        Leftover{"roce_ipv4", "10.0.8.40", "NCCL_IB_GID_INDEX", "-1", ""}));

TEST(GivenFile, IsNamedInTheWarning) {
  const Node node =
      Machine(machine_text("single_ib") + "etc/nccl.conf = NCCL_P2P_DISABLE=1\n").read();
  const Plan plan = make_plan(node, two_nodes("10.1.0.20"), {});
  EXPECT_THAT(plan.warnings, ElementsAre(testing::AllOf(HasSubstr("(/etc/nccl.conf)"),
                                                        testing::Not(HasSubstr("shell")))));
}

}  // namespace
}  // namespace ddp::fabric
