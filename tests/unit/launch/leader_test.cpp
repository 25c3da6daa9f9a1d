// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "fake_environment.h"
#include "tests/unit/error_of.h"

namespace ddp::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns "leader HOST" or the error.
std::string leader_of(const Variables& variables, const NodeFacts& node = {}) {
  std::string host;
  const std::string error =
      error_of([&] { host = find_leader_address(slurm_facts(variables, node), {}).host; });
  return error.empty() ? "leader " + host : error;
}

Variables arbitrary(const Variables& more) {
  return merged(merged(two_by_two(), {{"SLURM_DISTRIBUTION", "arbitrary"}}), more);
}

TEST(Leader, IsNotGuessedInArbitraryOrderWithoutAHint) {
  EXPECT_THAT(leader_of(arbitrary({})),
              AllOf(HasSubstr("cannot tell which node runs rank 0"), HasSubstr("SLURM_HOSTFILE"),
                    HasSubstr("--ddp=master_addr=")));
}

TEST(Leader, IgnoresAHostfileOfAnotherStep) {
  EXPECT_THAT(leader_of(arbitrary({{"SLURM_DDP_HEAD", "elsewhere"}})), HasSubstr("cannot tell"));
}

TEST(Leader, IsTheFirstOfTheListInAnArbitraryJob) {
  const Variables list = {
      {"SLURM_ARBITRARY_NODELIST", "p2,p1"}, {"SLURM_GTIDS", "0,2"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(leader_of(arbitrary(list)), "leader p2");
  EXPECT_EQ(
      leader_of(arbitrary(merged(list, {{"SLURM_ARBITRARY_NODELIST", "q9,p2"}}))).substr(0, 11),
      "cannot tell")
      << "the list is another job's";
  EXPECT_THAT(leader_of(arbitrary(merged(list, {{"SLURM_GTIDS", "2,3"}, {"SLURM_PROCID", "2"}}))),
              HasSubstr("p2 does not run rank 0"))
      << "srun got another list";
  EXPECT_EQ(leader_of(merged(two_by_two(), {{"SLURM_ARBITRARY_NODELIST", "p2,p1"}})), "leader p1");
}

TEST(Leader, IgnoresAHostfileInBlockOrder) {
  EXPECT_EQ(leader_of(merged(two_by_two(), {{"SLURM_DDP_HEAD", "p2"}})), "leader p1");
}

TEST(Leader, ProcessMapTakesPrecedenceOverTheHostfile) {
  // srun -m arbitrary -w LIST uses LIST even if SLURM_HOSTFILE is set.
  EXPECT_EQ(leader_of(arbitrary({{"SLURM_DDP_HEAD", "p2"},
                                 {"SLURM_MPI_TYPE", "pmix"},
                                 {"SLURM_PMIX_MAPPING_SERV", "(vector,(0,1,2),(1,1,2))"}})),
            "leader p1");
}

TEST(Leader, NodeReportsAContradictionWithItsOwnTasks) {
  // The hostfile says p2, but the tasks of p2 are 2 and 3.
  EXPECT_THAT(leader_of(arbitrary({{"SLURM_DDP_HEAD", "p2"}})),
              HasSubstr("p2 does not run rank 0"));
  const Variables on_p1 = {{"SLURM_DDP_HEAD", "p2"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_GTIDS", "0,1"},
                           {"SLURMD_NODENAME", "p1"}};
  EXPECT_THAT(leader_of(arbitrary(on_p1)), HasSubstr("p1 runs rank 0"));
}

TEST(Leader, IsNotGuessedForComponentsWithoutNodes) {
  EXPECT_THAT(leader_of(merged(two_by_two(), {{"SLURM_DDP_COMPONENTS", "2"}})),
              AllOf(HasSubstr("components"), HasSubstr("--mpi=pmix")));
}

TEST(Leader, StepOfOneComponentUsesItsOwnFirstNode) {
  EXPECT_EQ(leader_of(merged(two_by_two(), {{"SLURM_HET_SIZE", "2"},
                                            {"SLURM_JOB_NODELIST_HET_GROUP_0", "q[1-9]"},
                                            {"SLURM_JOB_NODELIST_HET_GROUP_1", "p[1-8]"}})),
            "leader p1");
}

struct Lookup {
  NameLookup lookup;
  const char* on_one_node;
  const char* on_other_node;
  const char* on_own_node;
};

class NameOfLeader : public testing::TestWithParam<Lookup> {};

TEST_P(NameOfLeader, LookupDecidesTheAddress) {
  const NodeFacts node{GetParam().lookup, {}};
  const Variables alone = {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "p1"},
                           {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "2"},
                           {"SLURM_PROCID", "0"},         {"SLURM_NODEID", "0"},
                           {"SLURM_GTIDS", "0,1"},        {"SLURMD_NODENAME", "p1"}};
  const Variables own = {{"SLURM_PROCID", "0"},
                         {"SLURM_NODEID", "0"},
                         {"SLURM_GTIDS", "0,1"},
                         {"SLURMD_NODENAME", "p1"}};
  EXPECT_THAT(leader_of(merged(two_by_two(), alone), node), HasSubstr(GetParam().on_one_node));
  EXPECT_THAT(leader_of(two_by_two(), node), HasSubstr(GetParam().on_other_node));
  EXPECT_THAT(leader_of(merged(two_by_two(), own), node), HasSubstr(GetParam().on_own_node));
}

INSTANTIATE_TEST_SUITE_P(
    Outcomes, NameOfLeader,
    testing::Values(Lookup{NameLookup::not_done, "leader p1", "leader p1", "leader p1"},
                    Lookup{NameLookup::usable, "leader p1", "leader p1", "leader p1"},
                    Lookup{NameLookup::only_local, "leader 127.0.0.1",
                           "loopback or link-local address only", "leader p1"},
                    Lookup{NameLookup::elsewhere, "leader 127.0.0.1", "", ""},  // of one node only
                    Lookup{NameLookup::unknown_name, "leader 127.0.0.1",
                           "is unknown to the name service on p2",
                           "is unknown to the name service on p1"},
                    Lookup{NameLookup::no_answer, "leader 127.0.0.1", "leader p1", "leader p1"},
                    Lookup{NameLookup::timed_out, "leader 127.0.0.1", "leader p1", "leader p1"}));

TEST(Leader, FirstTaskOfTheNodeNotesAnUnresponsiveNameService) {
  for (const auto lookup : {NameLookup::no_answer, NameLookup::timed_out}) {
    const Plan first = slurm_plan(two_by_two(), {}, NodeFacts{lookup, {}});
    EXPECT_EQ(value_in(first, "MASTER_ADDR"), "p1");
    EXPECT_THAT(first.own_notes(),
                testing::ElementsAre(AllOf(HasSubstr("name service of p2 did not answer for p1"),
                                           HasSubstr("--ddp=master_addr=ADDRESS"))));
    const Plan second =
        slurm_plan(merged(two_by_two(), {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}}), {},
                   NodeFacts{lookup, {}});
    EXPECT_THAT(second.own_notes(), testing::IsEmpty());
  }
  EXPECT_THAT(slurm_plan(two_by_two(), {}, NodeFacts{NameLookup::usable, {}}).own_notes(),
              testing::IsEmpty());
}

Settings suffixed(Origin origin, const std::string& spec = "addr_suffix=i") {
  Settings settings;
  apply(settings, parse_spec(spec, "test"), origin);
  return settings;
}

TEST(AddressSuffix, FollowsTheFirstLabelOfAName) {
  EXPECT_EQ(with_suffix("jwb0001", "i"), "jwb0001i");
  EXPECT_EQ(with_suffix("jwb0001.juwels", "i"), "jwb0001i.juwels");
  EXPECT_EQ(with_suffix("n1", ".ib.site"), "n1.ib.site");
  EXPECT_EQ(with_suffix("n1", ""), "n1");
}

TEST(AddressSuffix, AppliesToEveryNamePublishedToOtherNodes) {
  const Plan plan = slurm_plan(merged(two_by_two(), {{"http_proxy", "x"}}),
                               suffixed(Origin::site, "addr_suffix=-ib,tf_config"));
  EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "p1-ib");
  EXPECT_THAT(plan.find("MASTER_ADDR")->rule, HasSubstr("addr_suffix=-ib"));
  EXPECT_THAT(value_in(plan, "JAX_COORDINATOR_ADDRESS"), HasSubstr("p1-ib:"));
  EXPECT_THAT(value_in(plan, "TF_CONFIG"), AllOf(HasSubstr("p1-ib:"), HasSubstr("p2-ib:")));
  EXPECT_EQ(value_in(plan, "no_grpc_proxy"), "p1-ib,p2-ib");
  EXPECT_EQ(value_in(slurm_plan(merged(two_by_two(), {{"MASTER_ADDR", "mine"}}),
                                suffixed(Origin::command_line)),
                     "MASTER_ADDR"),
            "mine")
      << "a given address is used unchanged";
  const Plan agents =
      slurm_plan(merged(two_by_two(), {{"SLURM_STEP_NUM_TASKS", "2"},
                                       {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                       {"SLURM_PROCID", "1"},
                                       {"SLURM_GTIDS", "1"}}),
                 suffixed(Origin::command_line, "torchrun,rdzv=c10d,addr_suffix=i"));
  EXPECT_EQ(value_in(agents, "PET_LOCAL_ADDR"), "p2i");
}

TEST(AddressSuffix, UnresolvableSuffixFailsOnlyAStepWhoseUserRequestedIt) {
  NodeFacts node{NameLookup::unknown_name, {}};
  EXPECT_THAT([&] { slurm_plan(two_by_two(), suffixed(Origin::command_line), node); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("'p1i'"), HasSubstr("leave out addr_suffix=i"))));
  node.leader_lookup = NameLookup::usable;
  node.lacks_suffix = true;
  const Plan plan = slurm_plan(two_by_two(), suffixed(Origin::site), node);
  EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "p1");
  EXPECT_THAT(plan.own_notes(), testing::ElementsAre(HasSubstr("where p1i does not resolve")));
}

TEST(AddressSuffix, MayResolveToALoopbackOnItsOwnHost) {
  const Variables own = {{"SLURM_PROCID", "0"},
                         {"SLURM_NODEID", "0"},
                         {"SLURM_GTIDS", "0,1"},
                         {"SLURMD_NODENAME", "p1"}};
  const NodeFacts node{NameLookup::only_local, {}};
  EXPECT_EQ(value_in(slurm_plan(merged(two_by_two(), own), suffixed(Origin::command_line), node),
                     "MASTER_ADDR"),
            "p1i");
}

TEST(Leader, MpirunOverSeveralHostsNamesTheRemedy) {
  Facts facts;
  facts.step.launcher = Launcher::open_mpi;
  facts.step.node_count = 0;
  EXPECT_THAT([&] { find_leader_address(facts, {}); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("-x MASTER_ADDR="), HasSubstr("master_addr=HOST"))));
}

}  // namespace
}  // namespace ddp::launch
