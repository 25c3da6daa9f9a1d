// SPDX-License-Identifier: Apache-2.0
// Warnings about a task's CPUs and limits.
#include "spank_plugin/fabric/plan/task_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spank_plugin/fabric/files/cpu_list.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(CpuList, RoundTripsInTheKernelsFormat) {
  EXPECT_THAT(parse_cpu_list("0-2,8\n"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list("4,1-2,2"), ElementsAre(1, 2, 4));
  for (const auto* const wrong : {"", ",", "x", "3-1", "1-", "-1", "0-65536", "1-2-3", "0 1"}) {
    EXPECT_THAT(parse_cpu_list(wrong), IsEmpty()) << wrong;
  }
  EXPECT_EQ(format_cpu_list(parse_cpu_list("0-2,8,10-11")), "0-2,8,10-11");
  EXPECT_EQ(format_cpu_list({}), "");
}

std::vector<std::string> warnings_for(const Node& node, Request request,
                                      std::map<std::string, std::string> user = {}) {
  return make_plan(node, request, test::variables(std::move(user))).warnings;
}

TEST(CpusOfGpu, CauseAWarningIfAllAreFar) {
  Node node;
  test::add_gpu(node, {"pci0000:15", "0000:15:01.0", "0000:17:00.0"}, 3);
  node.gpus[0].local_cpus = "48-63,112-127";
  Request request;
  request.gpu = "0";
  request.cpus = parse_cpu_list("0-15");
  EXPECT_THAT(warnings_for(node, request),
              ElementsAre(AllOf(HasSubstr("0000:17:00.0, is local to the CPUs 48-63,112-127"),
                                HasSubstr("bound to 0-15"), HasSubstr("map_ldom"),
                                HasSubstr("(this one's is 3)"))));
  request.cpus = parse_cpu_list("0-15,63");
  EXPECT_THAT(warnings_for(node, request), IsEmpty()) << "one CPU is near";
  request.cpus.clear();
  EXPECT_THAT(warnings_for(node, request), IsEmpty()) << "unknown";
  request.cpus = {0};
  request.gpu.reset();
  EXPECT_THAT(warnings_for(node, request), IsEmpty()) << "the task's GPU is unknown";
  request.gpu = "0";
  node.gpus[0].local_cpus.clear();
  EXPECT_THAT(warnings_for(node, request), IsEmpty()) << "sysfs does not report the CPUs";
}

TEST(LockedMemory, CausesAWarningIfRdmaNeedsMore) {
  Node node;
  test::add_interface(node, "eth0", "10.0.0.1/24");
  test::add_port(node, "mlx5_0", "InfiniBand", 200);
  Request request = test::two_nodes("10.0.0.2");
  const auto told = Contains(HasSubstr("may lock only 8192 KiB"));
  EXPECT_THAT(warnings_for(node, request), Not(told)) << "no limit";
  request.locked_memory = 8U << 20U;
  EXPECT_THAT(warnings_for(node, request), told);
  EXPECT_THAT(warnings_for(node, request, {{"NCCL_IB_DISABLE", "1"}}), Not(told));
  request.node_count = 1;
  EXPECT_THAT(warnings_for(node, request), Not(told)) << "one node";
  request.node_count = 2;
  request.locked_memory = std::uint64_t{1} << 30U;
  EXPECT_THAT(warnings_for(node, request), Not(told));
  request.locked_memory = 8U << 20U;
  node.can_use_verbs = false;
  EXPECT_THAT(warnings_for(node, request), Not(told)) << "TCP locks nothing";
}

}  // namespace
}  // namespace ddp::fabric
