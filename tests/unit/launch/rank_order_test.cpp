// SPDX-License-Identifier: Apache-2.0
// Tests that ranks can be numbered node by node, or so that neighbors share a switch.
#include "spank_plugin/launch/plan/rank_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/errors.h"
#include "fake_environment.h"
#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/switch_map.h"

namespace ddp::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Settings ordered(const std::string& order) {
  return asked("order=" + order);
}

// SLURM's variables for a task in a cyclic step of 5 tasks on p1 (ranks 0,2,3,4) and p2 (rank 1).
Variables cyclic_task(std::uint32_t rank) {
  const bool second = rank == 1;
  const std::map<std::uint32_t, std::string> local = {
      {0, "0"}, {1, "0"}, {2, "1"}, {3, "2"}, {4, "3"}};
  return merged(variables_in("SLURM_JOB_ID=100 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=5 "
                             "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=p[1-2] "
                             "SLURM_STEP_TASKS_PER_NODE=4,1 SLURM_DISTRIBUTION=cyclic"),
                {{"SLURM_PROCID", std::to_string(rank)},
                 {"SLURM_LOCALID", local.at(rank)},
                 {"SLURM_NODEID", second ? "1" : "0"},
                 {"SLURM_GTIDS", second ? "1" : "0,2,3,4"},
                 {"SLURMD_NODENAME", second ? "p2" : "p1"}});
}

TEST(Packed, NumbersRanksNodeByNode) {
  std::set<std::string> ranks;
  for (std::uint32_t slurm_rank = 0; slurm_rank < 5; ++slurm_rank) {
    const Plan plan = slurm_plan(cyclic_task(slurm_rank), ordered("packed"));
    ranks.insert(value_in(plan, "RANK"));
    if (slurm_rank == 1) {
      EXPECT_EQ(value_in(plan, "RANK"), "4") << "the only task of the second node";
      EXPECT_EQ(value_in(plan, "NODE_RANK"), "1");
    }
    EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "p1");
    EXPECT_EQ(value_in(plan, "JAX_PROCESS_ID"), value_in(plan, "RANK"));
  }
  EXPECT_THAT(ranks, ElementsAre("0", "1", "2", "3", "4"));
}

TEST(Packed, NeedsNoHintInArbitraryOrder) {
  const auto variables =
      merged(two_by_two(),
             {{"SLURM_DISTRIBUTION", "arbitrary"}, {"SLURM_PROCID", "0"}, {"SLURM_GTIDS", "0,2"}});
  EXPECT_THROW(slurm_plan(variables), LaunchError);
  const Plan plan = slurm_plan(variables, ordered("packed"));
  EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "p1");
  EXPECT_EQ(value_in(plan, "RANK"), "2");
}

TEST(Packed, NotesADifferenceFromSlurmsNumbering) {
  const auto notes = [](std::uint32_t rank, const Variables& more) {
    return slurm_plan(merged(cyclic_task(rank), more), ordered("packed")).notes;
  };
  const auto said = ElementsAre(HasSubstr("RANK differs from SLURM's numbers"));
  EXPECT_THAT(notes(1, {}), said);
  EXPECT_THAT(notes(0, {}), said) << "rank 0 reports for all";
  EXPECT_THAT(slurm_plan(two_by_two(), ordered("packed")).notes, ElementsAre())
      << "block order is packed already";
}

TEST(Packed, IsRejectedInAStepOfSeveralComponents) {
  const auto variables = merged(two_by_two(), {{"SLURM_HET_SIZE", "2"}});
  EXPECT_THROW(slurm_plan(variables, ordered("packed")), LaunchError);
}

TEST(OrderOfTheSite, FallsBackToSlurmsOrderIfImpossible) {
  const auto site = [](const std::string& order) {
    Settings settings = ordered(order);
    settings.order.origin = Origin::site;
    return settings;
  };
  const Variables components = merged(two_by_two(), {{"SLURM_HET_SIZE", "2"},
                                                     {"SLURM_JOB_NODELIST_HET_GROUP_0", "p1"},
                                                     {"SLURM_JOB_NODELIST_HET_GROUP_1", "p2"}});
  for (const auto* order : {"packed", "switch"}) {
    const Plan plan = slurm_plan(components, site(order));
    EXPECT_EQ(value_in(plan, "RANK"), "2");
    EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "p1");
    EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("although plugstack.conf asks for another")));
    EXPECT_THROW(slurm_plan(components, ordered(order)), LaunchError) << "the user requested it";
  }
  const Plan no_switches = slurm_plan(two_by_two(), site("switch"));
  EXPECT_EQ(value_in(no_switches, "RANK"), "2");
  EXPECT_THAT(no_switches.notes, ElementsAre(HasSubstr("scontrol show topology")));
  EXPECT_THAT(
      slurm_plan(merged(two_by_two(), {{"SLURM_DDP_SWITCHES", "nonsense"}}), site("switch")).notes,
      ElementsAre(HasSubstr("cannot read the map of switches")));
  const Plan cyclic = slurm_plan(cyclic_task(1), site("packed"));
  EXPECT_EQ(value_in(cyclic, "RANK"), "4") << "the order is used if possible";
}

constexpr const char* kScontrol =
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1,4]\n"
    "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[2,5]\n"
    "SwitchName=s3 Level=0 LinkSpeed=1 Nodes=n[3,6]\n"
    "SwitchName=left Level=1 LinkSpeed=1 Nodes=n[1,3-4,6] Switches=s[1,3]\n"
    "SwitchName=right Level=1 LinkSpeed=1 Nodes=n[2,5] Switches=s2\n"
    "SwitchName=top Level=2 LinkSpeed=1 Nodes=n[1-6] Switches=left,right\n";
constexpr const char* kMap = "top.left.s1=n[1,4];top.right.s2=n[2,5];top.left.s3=n[3,6]";

TEST(SwitchMap, IsMadeFromTheOutputOfScontrol) {
  EXPECT_EQ(make_switch_map(kScontrol), kMap);
  EXPECT_EQ(make_switch_map("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n1 \n"), "s1=n1");
  EXPECT_EQ(make_switch_map(""), "");
  EXPECT_EQ(make_switch_map("topology/none: nothing to show\n"), "");
  EXPECT_EQ(make_switch_map("SwitchName=a Switches=b\nSwitchName=b Switches=a\n"), "");
}

TEST(SwitchMap, SupportsBlocks) {
  EXPECT_EQ(make_switch_map("BlockName=b1 BlockIndex=0 Nodes=n[1-18] BlockSize=18\n"
                            "BlockName=b2 BlockIndex=1 Nodes=n[19-36] BlockSize=18\n"
                            "AggregatedBlock=b1,b2 BlockIndex=2 Nodes=n[1-36] BlockSize=36\n"),
            "b1=n[1-18];b2=n[19-36]");
}

TEST(SwitchMap, SurvivesALoopAndRejectsOverlongText) {
  const std::string loop = make_switch_map(
      "SwitchName=s1 Nodes=n1\nSwitchName=a Switches=s1,b\nSwitchName=b Switches=a");
  EXPECT_TRUE(loop.ends_with("a.s1=n1")) << loop;
  std::string many;
  for (int i = 0; i < 20'000; ++i) {
    many += "SwitchName=s" + std::to_string(i) + " Nodes=n" + std::to_string(i) + "\n";
  }
  EXPECT_THROW(make_switch_map(many), LaunchError);
  EXPECT_THROW(make_switch_map("SwitchName=a Switches=s[1-"), UsageError);
}

TEST(SwitchMap, GivesEachNodeThePathOfItsLeaf) {
  const std::vector<std::string> nodes = {"n4", "n9", "n2"};
  EXPECT_THAT(switch_paths(kMap, nodes), ElementsAre("top.left.s1", "", "top.right.s2"));
  for (const std::string& text :
       std::vector<std::string>{"s1", "s1=n[1-", "s 1=n1", "s1=n1;;", std::string(200'000, 'x')}) {
    EXPECT_THROW(switch_paths(text, nodes), UsageError) << text.substr(0, 40);
  }
}

// Counts how often a ring over nodes in this order crosses from one switch to another.
int crossings(const std::vector<std::uint32_t>& order, const std::vector<std::string>& paths) {
  int count = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (paths[order[i]] != paths[order[(i + 1) % order.size()]]) ++count;
  }
  return count;
}

TEST(OrderBySwitch, KeepsNodesOfOneSwitchTogetherAtEveryLevel) {
  const std::vector<std::string> nodes = {"n1", "n2", "n3", "n4", "n5", "n6"};
  const auto paths = switch_paths(kMap, nodes);
  const auto order = order_by_switch(paths);
  EXPECT_THAT(order, ElementsAre(0, 3, 2, 5, 1, 4)) << "left: s1, s3; then right: s2";
  EXPECT_EQ(crossings(order, paths), 3);
  EXPECT_EQ(crossings({0, 1, 2, 3, 4, 5}, paths), 6) << "as SLURM lists them";
}

TEST(OrderBySwitch, AcceptsNodesOfAnInnerSwitch) {
  const std::vector<std::string> paths = {"top.s1", "top", "top.s1", "", "top"};
  EXPECT_THAT(order_by_switch(paths), ElementsAre(0, 2, 1, 4, 3));
}

TEST(OrderBySwitch, IsAlwaysAPermutationWithTheFirstNodeFirst) {
  for (std::uint32_t seed = 1; seed < 200; ++seed) {
    std::vector<std::string> paths;
    std::uint32_t state = seed;
    const auto next = [&state] { return (state = state * 1'664'525U + 1'013'904'223U) >> 24U; };
    for (std::uint32_t i = 0; i < 1 + seed % 17; ++i) {
      const std::string top(1, static_cast<char>('a' + next() % 2));
      const std::string leaf(1, static_cast<char>('w' + next() % 4));
      paths.push_back(next() % 9 == 0 ? "" : top + "." + leaf);
    }
    const auto order = order_by_switch(paths);
    EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), paths.size());
    ASSERT_EQ(order.size(), paths.size());
    EXPECT_EQ(order.front(), 0U);
    std::set<std::string> left;  // each switch is one contiguous run
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (paths[order[i]] == paths[order[i - 1]]) continue;
      if (!paths[order[i - 1]].empty()) left.insert(paths[order[i - 1]]);
      EXPECT_FALSE(left.contains(paths[order[i]])) << seed;
    }
  }
}

// The variables of the first task on a node of a step of six nodes with two tasks each.
Variables on_node(std::uint32_t index) {
  const std::string name = "n" + std::to_string(index + 1);
  const std::string first = std::to_string(2 * index);
  return {{"SLURM_JOB_ID", "100"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", "12"},
          {"SLURM_STEP_NUM_NODES", "6"},
          {"SLURM_STEP_NODELIST", "n[1-6]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x6)"},
          {"SLURM_PROCID", first},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", std::to_string(index)},
          {"SLURM_GTIDS", first + "," + std::to_string(2 * index + 1)},
          {"SLURMD_NODENAME", name},
          {"SLURM_DDP_SWITCHES", kMap}};
}

TEST(BySwitch, RanksFollowTheOrderOfTheNodes) {
  std::vector<std::string> ranks;
  std::vector<std::string> nodes;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const Plan plan = slurm_plan(on_node(i), ordered("switch"));
    ranks.push_back(value_in(plan, "RANK"));
    nodes.push_back(value_in(plan, "NODE_RANK"));
    EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "n1");
  }
  EXPECT_THAT(ranks, ElementsAre("0", "8", "4", "2", "10", "6"));
  EXPECT_THAT(nodes, ElementsAre("0", "4", "2", "1", "5", "3"));
}

TEST(BySwitch, MissingMapIsAnErrorWithARemedy) {
  Variables variables = on_node(0);
  variables.erase("SLURM_DDP_SWITCHES");
  EXPECT_THAT([&] { slurm_plan(variables, ordered("switch")); },
              testing::ThrowsMessage<UsageError>(HasSubstr("scontrol show topology")));
}

TEST(BySwitch, NotesAContradictingNode) {
  const auto notes = [](const std::string& address) {
    return slurm_plan(merged(on_node(1), {{"SLURM_TOPOLOGY_ADDR", address}}), ordered("switch"))
        .notes;
  };
  const auto renumbered = HasSubstr("RANK differs from SLURM's numbers");
  EXPECT_THAT(notes("top.right.s2.n2"), ElementsAre(renumbered));
  EXPECT_THAT(notes("top.left.s1.n2"), ElementsAre(renumbered, HasSubstr("'top.left.s1.n2'")));
}

}  // namespace
}  // namespace ddp::launch
