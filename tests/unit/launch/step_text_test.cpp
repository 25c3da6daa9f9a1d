// SPDX-License-Identifier: Apache-2.0
// The small grammars of SLURM step variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/launcher_daemon.h"
#include "spank_plugin/launch/step/port_ranges.h"
#include "spank_plugin/launch/step/process_map.h"
#include "spank_plugin/launch/step/tasks_per_node.h"

namespace ddp::launch {
namespace {

using ::testing::ElementsAre;

struct Layout {
  std::string text;
  std::vector<std::uint32_t> tasks;
};

class TasksPerNodeReads : public testing::TestWithParam<Layout> {};

TEST_P(TasksPerNodeReads, EveryNode) {
  const auto layout = TasksPerNode::parse(GetParam().text);
  std::vector<std::uint32_t> tasks;
  std::uint32_t before = 0;
  for (std::uint32_t node = 0; node < layout.nodes(); ++node) {
    EXPECT_EQ(layout.before(node), before);
    tasks.push_back(layout.at(node));
    before += layout.at(node);
  }
  EXPECT_EQ(tasks, GetParam().tasks);
  EXPECT_EQ(layout.tasks(), before);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TasksPerNodeReads,
                         testing::Values(Layout{"1", {1}}, Layout{"4,1", {4, 1}},
                                         Layout{"2(x2)", {2, 2}}, Layout{"2,1(x2)", {2, 1, 1}},
                                         Layout{"8(x1)", {8}},
                                         Layout{"3(x2),1,4(x3)", {3, 3, 1, 4, 4, 4}}));

class TasksPerNodeRefuses : public testing::TestWithParam<std::string> {};

TEST_P(TasksPerNodeRefuses, Text) {
  EXPECT_THROW(TasksPerNode::parse(GetParam()), LaunchError) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Malformed, TasksPerNodeRefuses,
                         testing::Values("", "0", "a", "2(", "2(x", "2(x)", "2(x0)", "2(x2", "2(2)",
                                         "2(x2)3", "-1", "1,", ",1", "2(x-1)",
                                         "2(x99999999999999999999)", "99999999999", "1(x65537)",
                                         "1(x65536),1", "2147483647,1", "65536(x65536)"));

TEST(TasksPerNode, DetectsEqualNodes) {
  EXPECT_TRUE(TasksPerNode::parse("2(x2)").uniform());
  EXPECT_TRUE(TasksPerNode::parse("2,2(x3)").uniform());
  EXPECT_FALSE(TasksPerNode::parse("4,1").uniform());
}

TEST(TasksPerNode, HasNoTasksBeyondTheLastNode) {
  EXPECT_EQ(TasksPerNode::parse("4,1").at(2), 0U);
  EXPECT_EQ(TasksPerNode::parse("4,1").at(std::numeric_limits<std::uint32_t>::max() - 1), 0U);
}

TEST(PortRanges, ReadTheFormatsOfSlurmAndTheKernel) {
  EXPECT_THAT(parse_port_ranges("20086-20088", "X"), ElementsAre(PortRange{20086, 20088}));
  EXPECT_THAT(parse_port_ranges("7,9-9", "X"), ElementsAre(PortRange{7, 7}, PortRange{9, 9}));
  EXPECT_THAT(parse_port_ranges("", "X"), ElementsAre());
  EXPECT_THAT(all_ports(parse_port_ranges("20090,20086-20088,20087", "X")),
              ElementsAre(20086, 20087, 20088, 20090));
  EXPECT_EQ(all_ports(parse_port_ranges("1-65535", "X")).size(), 65'535U);
}

class PortRangesRefuse : public testing::TestWithParam<std::string> {};

TEST_P(PortRangesRefuse, Text) {
  EXPECT_THAT([&] { parse_port_ranges(GetParam(), "SLURM_STEP_RESV_PORTS"); },
              testing::ThrowsMessage<LaunchError>(testing::StartsWith("SLURM_STEP_RESV_PORTS=")));
}

INSTANTIATE_TEST_SUITE_P(Malformed, PortRangesRefuse,
                         testing::Values("0", "65536", "1-65536", "5-4", "a", "1-", "-1", "1,,2",
                                         "1 ", "[1-2]", "99999999999999999999999"));

struct Map {
  std::string text;
  std::uint32_t tasks;
  std::uint32_t nodes;
  std::optional<std::uint32_t> node;
};

class ProcessMap : public testing::TestWithParam<Map> {};

TEST_P(ProcessMap, GivesTheNodeOfRankZero) {
  const auto& [text, tasks, nodes, node] = GetParam();
  EXPECT_EQ(node_of_rank_zero(text, tasks, nodes), node) << text;
}

INSTANTIATE_TEST_SUITE_P(FromSlurm, ProcessMap,
                         testing::Values(Map{"(vector,(0,3,2))", 6, 3, 0},
                                         Map{"(vector,(0,3,1),(0,2,1))", 5, 3, 0},
                                         Map{"(vector,(1,1,1),(0,2,1),(0,1,1))", 4, 2, 1},
                                         Map{"(vector,(2,1,2),(0,2,1))", 4, 3, 2},
                                         Map{"(vector,(1,1,1),(0,1,2))", 3, 2, 1}));

INSTANTIATE_TEST_SUITE_P(NotOfThisStep, ProcessMap,
                         testing::Values(Map{"(vector,(0,1,1))", 2, 2, std::nullopt},
                                         Map{"(vector,(0,3,2))", 4, 3, std::nullopt},
                                         Map{"(vector,(2,1,2))", 2, 2, std::nullopt}));

INSTANTIATE_TEST_SUITE_P(
    Malformed, ProcessMap,
    testing::Values(
        Map{"", 1, 1, std::nullopt}, Map{"(vector)", 1, 1, std::nullopt},
        Map{"(vector,", 1, 1, std::nullopt}, Map{"(vector,(0,1,1)", 1, 1, std::nullopt},
        Map{"(vector,(0,1,1", 1, 1, std::nullopt}, Map{"(vector,(0,1))", 1, 1, std::nullopt},
        Map{"(vector,(0,0,1))", 1, 1, std::nullopt}, Map{"(vector,(0,1,0))", 1, 1, std::nullopt},
        Map{"(vector,(-1,1,1))", 1, 1, std::nullopt}, Map{"(vector,())", 1, 1, std::nullopt},
        Map{"(matrix,(0,1,1))", 1, 1, std::nullopt}, Map{"(vector,(0,1,1))x", 1, 1, std::nullopt},
        Map{"(vector,(0,2147483647,2147483647))", 1, 1, std::nullopt}));

TEST(LauncherDaemon, IsRecognizedByName) {
  for (const auto* program : {"orted", "/usr/bin/orted", "prted", "/opt/x/hydra_pmi_proxy"}) {
    EXPECT_TRUE(is_launcher_daemon(program)) << program;
  }
  for (const auto* program : {"", "python", "/orted/python", "orted.py", "orted/"}) {
    EXPECT_FALSE(is_launcher_daemon(program)) << program;
  }
}

}  // namespace
}  // namespace ddp::launch
