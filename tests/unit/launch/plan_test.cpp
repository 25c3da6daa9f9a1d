// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fake_environment.h"
#include "spank_plugin/launch/plan/master_port.h"
#include "spank_plugin/launch/plan/render.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Settings asked_from(const std::string& spec, Origin origin) {
  Settings settings;
  apply(settings, parse_spec(spec, "test"), origin);
  return settings;
}

std::uint16_t port_of(std::uint32_t job, std::uint32_t step, std::uint32_t restarts,
                      const Settings& settings = {}) {
  const auto variables = merged(two_by_two(), {{"SLURM_JOB_ID", std::to_string(job)},
                                               {"SLURM_STEP_ID", std::to_string(step)},
                                               {"SLURM_RESTART_COUNT", std::to_string(restarts)}});
  return choose_port(slurm_facts(variables).step, settings).candidates.front();
}

TEST(ComputedPort, FollowsTheFormula) {
  EXPECT_EQ(port_of(0, 0, 0), 61000);
  EXPECT_EQ(port_of(100, 0, 0), 61100);
  EXPECT_EQ(port_of(100, 1, 0), 62109);
  EXPECT_EQ(port_of(100, 0, 1), 61357);
  EXPECT_EQ(port_of(4535, 0, 0), 65535);
  EXPECT_EQ(port_of(4536, 0, 0), 61000);
  EXPECT_EQ(port_of(4294967295, 4294967280, 4294967295),
            61000 + (4294967295ULL + 1009 * 4294967280ULL + 257 * 4294967295ULL) % 4536);
}

TEST(ComputedPort, DiffersBetweenNeighborJobsStepsAndRestarts) {
  std::set<std::uint16_t> ports;
  int cases = 0;
  for (std::uint32_t job = 5000; job < 5020; ++job) {
    for (std::uint32_t step = 0; step < 4; ++step) {
      for (std::uint32_t restart = 0; restart < 2; ++restart, ++cases)
        ports.insert(port_of(job, step, restart));
    }
  }
  EXPECT_EQ(ports.size(), static_cast<std::size_t>(cases));
}

TEST(ComputedPort, StaysInTheSitesRange) {
  Settings settings;
  settings.computed_ports = {{50000, 50002}, Origin::site};
  for (std::uint32_t job = 0; job < 10; ++job) {
    const auto port = port_of(job, 0, 0, settings);
    EXPECT_TRUE(50000 <= port && port <= 50002) << port;
  }
}

TEST(ReservedPorts, AreTheSourceOfThePort) {
  const Variables variables = merged(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "20086-20088"}});
  EXPECT_EQ(slurm_plan(variables).find("MASTER_PORT")->source, "SLURM_STEP_RESV_PORTS");
  EXPECT_THROW(slurm_plan(merged(variables, {{"SLURM_STEP_RESV_PORTS", "20086-"}})), LaunchError);
}

TEST(ReservedPorts, LeaveOneForCraysPmi) {
  const auto ports = [](const Variables& more) {
    const StepFacts step = slurm_facts(merged(two_by_two(), more)).step;
    return std::make_pair(choose_port(step, {}).candidates, service_ports(step, {}, 8));
  };
  using Ports = std::vector<std::uint16_t>;
  const Variables reserved = {{"SLURM_STEP_RESV_PORTS", "20086-20088"}};
  // SLURM gives the first port to PMI. In the step's environment, the MPI type may be the only sign
  // of PMI.
  for (const Variables& cray :
       {Variables{{"PMI_CONTROL_PORT", "20086"}}, Variables{{"SLURM_MPI_TYPE", "cray_shasta"}},
        Variables{{"SLURM_MPI_TYPE", "cray_shasta"}, {"PMI_CONTROL_PORT", "of an outer step"}}}) {
    EXPECT_EQ(ports(merged(reserved, cray)), std::make_pair(Ports{20087, 20088}, Ports{20088}));
  }
  EXPECT_EQ(ports(merged(reserved, {{"SLURM_MPI_TYPE", "pmix"}})).first.front(), 20086);
  EXPECT_EQ(ports(merged(reserved, {{"PMI_CONTROL_PORT", "none"}})).first.front(), 20086);
  EXPECT_EQ(ports({{"SLURM_STEP_RESV_PORTS", "7"}, {"PMI_CONTROL_PORT", "7"}}).first.front(), 61100)
      << "computed, because the only reserved port belongs to PMI";
  EXPECT_EQ(ports({{"PMI_CONTROL_PORT", "61100"}}).first.front(), 61101);
}

TEST(PortCandidates, AreAFewConsecutivePorts) {
  auto facts = slurm_facts(two_by_two());
  EXPECT_EQ(choose_port(facts.step, {}).candidates.size(), 64U);
  facts.step.port_key = 4535;
  EXPECT_EQ(choose_port(facts.step, {}).candidates[1], 61000) << "wraps";
  facts.step.reserved_ports = "20086-20088";
  EXPECT_EQ(choose_port(facts.step, {}).candidates,
            (std::vector<std::uint16_t>{20086, 20087, 20088}));
  facts.step.reserved_ports = "1-65535";
  EXPECT_EQ(choose_port(facts.step, {}).candidates.size(), 64U);
}

TEST(WatchPorts, AreComputedAndNobodyElses) {
  auto facts = slurm_facts(two_by_two());
  EXPECT_THAT(watch_ports(facts.step, {}), ::testing::ElementsAre(62234, 62235, 62236, 62237));
  facts.step.reserved_ports = "20086-20088";
  EXPECT_EQ(watch_ports(facts.step, {}).front(), 62234);
  Settings settings;
  settings.computed_ports = {{50000, 50015}, Origin::site};
  for (facts.step.port_key = 0; facts.step.port_key < 16; ++facts.step.port_key) {
    const auto ports = watch_ports(facts.step, settings);
    facts.step.reserved_ports = "";
    EXPECT_THAT(ports, ::testing::SizeIs(4));
    EXPECT_THAT(ports, Not(Contains(choose_port(facts.step, settings).candidates.front())));
    EXPECT_THAT(ports, Not(Contains(service_ports(facts.step, settings, 1).front())));
    EXPECT_THAT(ports, ::testing::Each(AllOf(::testing::Ge(50000), ::testing::Le(50015))));
  }
  settings.computed_ports = {{50000, 50014}, Origin::site};
  EXPECT_THAT(watch_ports(facts.step, settings), IsEmpty());
}

TEST(Plan, UsesThePortThatTheNodeFoundFree) {
  NodeFacts node;
  node.free_port = 61101;
  const Plan plan = slurm_plan(two_by_two(), {}, node);
  EXPECT_EQ(value_in(plan, "MASTER_PORT"), "61101");
  EXPECT_THAT(plan.find("MASTER_PORT")->rule, HasSubstr("first that is free"));
}

TEST(Plan, InvalidRendezvousIsNotedInOneShortLine) {
  const Plan plan =
      slurm_plan(merged(two_by_two(), {{"MASTER_ADDR", "a\nb\x1b[2J" + std::string(100'000, 'x')},
                                       {"MASTER_PORT", " 29500"}}));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("'a?b?[2Jx")));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("is not a host name or address")));
  EXPECT_THAT(plan.notes,
              Contains(HasSubstr("MASTER_PORT=' 29500' (environment) is not a number")));
  for (const auto& line : {render_summary(plan), render_task_line(plan)}) {
    EXPECT_LT(line.size(), 1'000U);
    EXPECT_EQ(line.find_first_of("\n\x1b"), std::string::npos);
  }
}

TEST(Plan, FollowsThePrecedenceOfSources) {
  const Variables user = {{"MASTER_PORT", "1111"}};
  const auto port = [&](const Variables& more, const Settings& settings) {
    return value_in(slurm_plan(merged(two_by_two(), more), settings), "MASTER_PORT");
  };
  EXPECT_EQ(port(user, asked_from("master_port=2222", Origin::command_line)), "2222");
  EXPECT_EQ(port(user, asked_from("master_port=2222", Origin::environment)), "1111");
  EXPECT_EQ(port({}, asked_from("master_port=2222", Origin::environment)), "2222");
  EXPECT_EQ(port({}, {}), "61100");
  const Settings site = asked_from("master_addr=2.2.2.2", Origin::site);
  EXPECT_EQ(value_in(slurm_plan(two_by_two(), site), "MASTER_ADDR"), "2.2.2.2");
  EXPECT_EQ(
      value_in(slurm_plan(merged(two_by_two(), {{"MASTER_ADDR", "mine"}}), site), "MASTER_ADDR"),
      "mine");
}

TEST(Plan, NestedStepIsPlannedFromScratch) {
  const Plan outer = slurm_plan(merged(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "20000-20002"}}));
  Variables inherited = {{"SLURM_STEP_RESV_PORTS", "20000-20002"}};
  for (const auto& entry : outer.entries) inherited[entry.name] = entry.value;
  const Variables inner_step = {{"SLURM_STEP_ID", "1"},
                                {"SLURM_STEP_NUM_TASKS", "1"},
                                {"SLURM_STEP_NUM_NODES", "1"},
                                {"SLURM_STEP_NODELIST", "p2"},
                                {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                {"SLURM_PROCID", "0"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_NODEID", "0"},
                                {"SLURM_GTIDS", "0"},
                                {"SLURMD_NODENAME", "p2"}};
  const Plan inner = slurm_plan(merged(merged(two_by_two(), inherited), inner_step));
  EXPECT_EQ(value_in(inner, "MASTER_ADDR"), "p2");
  EXPECT_EQ(value_in(inner, "MASTER_PORT"), "62109")
      << "computed, because the reserved ports are the outer step's";
  EXPECT_EQ(value_in(inner, "WORLD_SIZE"), "1");
  EXPECT_THAT(value_in(inner, "SLURM_DDP_SET"), StartsWith("100.1:"));
}

TEST(Plan, SecondPlanForTheSameStepChangesNothing) {
  NodeFacts node;
  node.free_port = 61105;
  const Plan first = slurm_plan(two_by_two(), asked_from("auto", Origin::command_line), node);
  Variables planned = two_by_two();
  for (const auto& entry : first.entries) planned[entry.name] = entry.value;
  const Plan second = slurm_plan(planned);
  for (const auto& entry : first.entries)
    EXPECT_EQ(value_in(second, entry.name), entry.value) << entry.name;
  const Plan told = slurm_plan(planned, asked_from("master_port=2222", Origin::environment));
  EXPECT_EQ(value_in(told, "MASTER_PORT"), "2222") << "unless requested";
}

TEST(Plan, UsersVariableStaysTheUsersInsideTheStep) {
  const Plan outer = slurm_plan(merged(two_by_two(), {{"MASTER_PORT", "1234"}}));
  EXPECT_THAT(render_exports(outer), Not(HasSubstr("MASTER_PORT=")));
  EXPECT_THAT(value_in(outer, "SLURM_DDP_SET"), Not(HasSubstr("MASTER_PORT")));
  EXPECT_THAT(value_in(outer, "SLURM_DDP_SET"), HasSubstr("MASTER_ADDR"));
}

TEST(Notes, LocalhostOfTheSiteIsNotAMistake) {
  EXPECT_THAT(slurm_plan(two_by_two(), asked_from("master_addr=127.0.0.1", Origin::site)).notes,
              IsEmpty())
      << "the site's nodes are all one host";
}

TEST(Marker, RejectsOtherText) {
  for (const std::string& text :
       std::vector<std::string>{"", "100.0", "100.0:MASTER_PORT", ":MASTER_PORT:", "a:b:c:d",
                                "100.0:A=:", "100.0:" + std::string(20'000, 'x') + ":"}) {
    EXPECT_EQ(parse_marker(text), std::nullopt) << text.substr(0, 40);
  }
  const Marker marker{"100.0", {{"A", "0123abcd"}, {"B", ""}}, "1-2"};
  EXPECT_EQ(format_marker(marker), "100.0:A=0123abcd,B:1-2");
  EXPECT_EQ(parse_marker("100.0:A=0123abcd,B:1-2")->variables, marker.variables);
}

TEST(Marker, ChangedValuesBelongToTheUser) {
  const Variables outer = {{"SLURM_DDP_SET", value_in(slurm_plan(two_by_two()), "SLURM_DDP_SET")},
                           {"MASTER_ADDR", "p1"},
                           {"MASTER_PORT", "61100"}};
  const auto inner = [&](const Variables& more) {
    return slurm_plan(merged(merged(merged(two_by_two(), {{"SLURM_STEP_ID", "1"}}), outer), more));
  };
  EXPECT_EQ(value_in(inner({}), "MASTER_PORT"), "62109")
      << "derived again, because the value is the outer step's";
  EXPECT_EQ(value_in(inner({{"MASTER_PORT", "12345"}}), "MASTER_PORT"), "12345");
  EXPECT_TRUE(inner({{"MASTER_PORT", "12345"}}).find("MASTER_PORT")->kept);
  const auto same_step = slurm_plan(merged(merged(two_by_two(), outer), {{"MASTER_PORT", "7"}}));
  EXPECT_EQ(value_in(same_step, "MASTER_PORT"), "7") << "ddp-launch in a task";
  EXPECT_EQ(value_in(inner({{"SLURM_DDP_SET", "100.0:MASTER_PORT:"}, {"MASTER_PORT", "7"}}),
                     "MASTER_PORT"),
            "62109")
      << "an older release without hashes";
}

TEST(Plan, IncludesTheFabricPart) {
  Facts facts = slurm_facts(two_by_two());
  facts.fabric = {{{"GLOO_SOCKET_IFNAME", "ib0", "leads to the leader", "sysfs", false, false},
                   {"NCCL_IB_HCA", "mine", "kept", "/etc/nccl.conf", true, false}},
                  {"a warning"},
                  {"a remark"},
                  "fabric: leader through ib0"};
  const Plan plan = make_plan(facts, {}, Inherited(lookup_in({}), facts.step.id));
  EXPECT_EQ(value_in(plan, "GLOO_SOCKET_IFNAME"), "ib0");
  EXPECT_THAT(value_in(plan, "SLURM_DDP_SET"),
              AllOf(HasSubstr("GLOO_SOCKET_IFNAME"), Not(HasSubstr("NCCL_IB_HCA"))));
  EXPECT_THAT(plan.notes, testing::ElementsAre("a warning"));
  EXPECT_THAT(render_summary(plan), HasSubstr("; fabric: leader through ib0"));
  EXPECT_THAT(render_table(plan),
              AllOf(HasSubstr("note: a warning"), HasSubstr("left alone: a remark")));
  EXPECT_THAT(render_exports(plan), Not(HasSubstr("NCCL_IB_HCA")));
  EXPECT_EQ(nlohmann::json::parse(render_json(plan)).at("remarks").size(), 1U);
}

TEST(Plan, FailureOfANodeIsReportedByItsFirstTask) {
  Facts facts = slurm_facts(two_by_two());  // of rank 2, the first on p2
  facts.fabric.warnings = {"a recipe's value"};
  facts.fabric.node_warnings = {"no route"};
  const auto plan_of = [&] {
    return make_plan(facts, {}, Inherited(lookup_in({}), facts.step.id));
  };
  EXPECT_THAT(plan_of().own_notes(), testing::ElementsAre("p2: no route"));
  EXPECT_THAT(render_brief(plan_of()), AllOf(StartsWith("rank 2 of 4 on p2: "),
                                             testing::EndsWith("\nnote: p2: no route\n")));
  facts.task.rank = 3;
  facts.task.local_rank = 1;
  EXPECT_THAT(plan_of().own_notes(), IsEmpty());
  facts.task.rank = facts.task.local_rank = 0;
  EXPECT_THAT(plan_of().own_notes(), testing::ElementsAre("a recipe's value", "p2: no route"));
}

TEST(Render, SummaryNamesBothEndsOfTheRendezvous) {
  EXPECT_EQ(render_summary(slurm_plan(two_by_two())),
            "4 ranks on 2 nodes; MASTER_ADDR=p1 (host of rank 0, the step's first node), "
            "MASTER_PORT=61100 (computed from job, step and restart number)");
}

TEST(Render, TableHasOneRowPerVariableWithItsRule) {
  const Plan plan = slurm_plan(merged(two_by_two(), {{"MASTER_ADDR", "localhost"}}));
  const std::string table = render_table(plan);
  EXPECT_THAT(table, HasSubstr("plan of rank 2 of 4 on p2, step 100.0\n"));
  for (const auto& entry : plan.entries) EXPECT_THAT(table, HasSubstr("\n" + entry.name + " "));
  EXPECT_THAT(table, HasSubstr("environment"));
  EXPECT_THAT(table, HasSubstr("kept: the user set it"));
  EXPECT_THAT(table, HasSubstr("note: MASTER_ADDR=localhost"));
}

TEST(Render, ExternalValuesCannotControlATerminal) {
  const Plan plan = slurm_plan(merged(two_by_two(), {{"MASTER_ADDR", "a\x1b[2Jb"}}));
  for (const auto& text : {render_table(plan), render_summary(plan), render_task_line(plan)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

TEST(Render, JsonHasEveryEntry) {
  const Plan plan = slurm_plan(merged(two_by_two(), {{"MASTER_ADDR", "odd\xff"}}));
  const auto json = nlohmann::json::parse(render_json(plan));
  EXPECT_EQ(json.at("schema"), "slurm-ddp/plan/1");
  EXPECT_EQ(json.at("rank"), 2);
  ASSERT_EQ(json.at("variables").size(), plan.entries.size());
  EXPECT_EQ(json.at("variables")[0].at("name"), "RANK");
  EXPECT_EQ(json.at("variables")[9].at("kept"), true);
  EXPECT_EQ(render_json(plan).find('\n'), std::string::npos);
}

TEST(Render, ExportsAreValidShell) {
  EXPECT_THAT(
      render_exports(slurm_plan(two_by_two())),
      AllOf(StartsWith("export RANK=2\n"), HasSubstr("export MASTER_ADDR=p1\n"),
            HasSubstr("export SLURM_DDP_SET=100.0:SLURM_NTASKS_PER_NODE=" + hash_for_marker("2") +
                      ",MASTER_ADDR=" + hash_for_marker("p1") + ",MASTER_PORT=")));
}

TEST(OpenMpiPlan, HasNoNodeRankOnSeveralHosts) {
  const Variables variables = {
      {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMIX_NAMESPACE", "5.1"},           {"MASTER_ADDR", "first-host"}};
  const Facts facts = read_open_mpi(lookup_in(variables), "box");
  const Plan plan = make_plan(facts, {}, Inherited(lookup_in(variables), facts.step.id));
  EXPECT_EQ(plan.find("NODE_RANK"), nullptr);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("NODE_RANK")));
  EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "first-host");
}

}  // namespace
}  // namespace ddp::launch
