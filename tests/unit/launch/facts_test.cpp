// SPDX-License-Identifier: Apache-2.0
// Facts of a step: rejected values, and the sources under other launchers.
#include "spank_plugin/launch/step/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_environment.h"
#include "spank_plugin/launch/step/error.h"
#include "tests/unit/error_of.h"

namespace ddp::launch {
namespace {

using ::testing::HasSubstr;

std::string message_of(const Variables& variables) {
  return error_of([&] { slurm_facts(variables); });
}

TEST(SlurmFacts, ErrorNamesAMissingVariable) {
  for (const auto* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID", "SLURM_LOCALID",
        "SLURM_NODEID"}) {
    auto variables = two_by_two();
    variables.erase(name);
    EXPECT_THAT(message_of(variables), HasSubstr(std::string(name) + " is not set"));
  }
}

TEST(SlurmFacts, OptionalVariablesMayBeMissing) {
  auto variables = two_by_two();
  variables.erase("SLURM_GTIDS");
  variables.erase("SLURMD_NODENAME");
  EXPECT_EQ(message_of(variables), "");
}

TEST(SlurmFacts, MalformedValuesAreRejected) {
  const struct {
    const char* name;
    const char* value;
    const char* message;
  } kCases[] = {{"SLURM_JOB_ID", "4294967296", "SLURM_JOB_ID"},
                {"SLURM_JOB_ID", "12a", "SLURM_JOB_ID"},
                {"SLURM_STEP_ID", "", "SLURM_STEP_ID"},
                {"SLURM_STEP_NUM_TASKS", "0", "is 0"},
                {"SLURM_STEP_NUM_TASKS", "5", "contradict"},
                {"SLURM_STEP_NUM_NODES", "3", "contradict"},
                {"SLURM_STEP_NUM_NODES", "999999", "SLURM_STEP_NUM_NODES"},
                {"SLURM_STEP_NODELIST", "p1", "contradict"},
                {"SLURM_STEP_NODELIST", "p[1-", "node list"},
                {"SLURM_STEP_TASKS_PER_NODE", "2", "contradict"},
                {"SLURM_STEP_TASKS_PER_NODE", "two", "tasks per node"},
                {"SLURM_PROCID", "4", "is not below"},
                {"SLURM_PROCID", "-1", "SLURM_PROCID"},
                {"SLURM_LOCALID", "2", "SLURM_LOCALID"},
                {"SLURM_NODEID", "7", "SLURM_LOCALID"},
                {"SLURM_GTIDS", "0,1", "SLURM_GTIDS"},
                {"SLURM_GTIDS", "2", "SLURM_GTIDS"},
                {"SLURM_GTIDS", "2,3,", "SLURM_GTIDS"},
                {"SLURM_RESTART_COUNT", "x", "SLURM_RESTART_COUNT"}};
  for (const auto& [name, value, message] : kCases) {
    EXPECT_THAT(message_of(merged(two_by_two(), {{name, value}})), HasSubstr(message))
        << name << "=" << value;
  }
}

TEST(SlurmFacts, MapInheritedFromAnEnclosingStepIsIgnored) {
  const Variables outer_map = {{"SLURM_PMIX_MAPPING_SERV", "(vector,(1,1,2),(0,1,2))"}};
  EXPECT_EQ(slurm_facts(merged(two_by_two(), outer_map)).step.rank_zero_in_map, std::nullopt);
  const auto with_pmix = merged(merged(two_by_two(), outer_map), {{"SLURM_MPI_TYPE", "pmix_v4"}});
  EXPECT_EQ(slurm_facts(with_pmix).step.rank_zero_in_map, 1U);
}

TEST(SlurmFacts, ReservedPortsOfAnEnclosingStepAreIgnored) {
  auto variables = merged(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "20000-20002"}});
  EXPECT_EQ(slurm_facts(variables).step.reserved_ports, "20000-20002");
  variables["SLURM_DDP_SET"] = "100.0:MASTER_PORT:20000-20002";
  EXPECT_EQ(slurm_facts(variables).step.reserved_ports, "20000-20002") << "the same step";
  variables["SLURM_DDP_SET"] = "99.0:MASTER_PORT:20000-20002";
  EXPECT_EQ(slurm_facts(variables).step.reserved_ports, "") << "inherited";
  variables["SLURM_DDP_SET"] = "99.0:MASTER_PORT:20003-20005";
  EXPECT_EQ(slurm_facts(variables).step.reserved_ports, "20000-20002") << "this step got its own";
}

TEST(SlurmFacts, NumbersOfSpecialStepsMayBeNegative) {
  auto variables = two_by_two();
  for (const auto& [text, id] :
       {std::pair("4294967290", "100.4294967290"), std::pair("-6", "100.4294967290"),
        std::pair("-5", "100.4294967291")}) {
    variables["SLURM_STEP_ID"] = text;
    EXPECT_EQ(slurm_facts(variables).step.id, id);
  }
  variables["SLURM_STEP_ID"] = "-x";
  EXPECT_THAT(message_of(variables), HasSubstr("SLURM_STEP_ID"));
}

TEST(SlurmFacts, ReadsAStepOf4096Nodes) {
  Variables variables = {{"SLURM_JOB_ID", "1"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_NODES", "4096"},
                         {"SLURM_STEP_NODELIST", "r[01-64]n[01-64]"},
                         {"SLURM_STEP_NUM_TASKS", "32768"},
                         {"SLURM_STEP_TASKS_PER_NODE", "8(x4096)"},
                         {"SLURM_PROCID", "32767"},
                         {"SLURM_LOCALID", "7"},
                         {"SLURM_NODEID", "4095"},
                         {"SLURMD_NODENAME", "r64n64"}};
  const Facts facts = slurm_facts(variables);
  EXPECT_EQ(facts.step.nodes[4095], "r64n64");
  EXPECT_EQ(facts.task.local_task_count, 8U);
}

Variables mpirun_rank() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_NAMESPACE", "1234567.1"}};
}

TEST(DetectLauncher, InnermostWins) {
  EXPECT_EQ(detect_launcher(lookup_in({})), Launcher::none);
  EXPECT_EQ(detect_launcher(lookup_in(two_by_two())), Launcher::slurm);
  EXPECT_EQ(detect_launcher(lookup_in(mpirun_rank())), Launcher::open_mpi);
  EXPECT_EQ(detect_launcher(lookup_in(merged(two_by_two(), mpirun_rank()))), Launcher::open_mpi)
      << "mpirun inside a step: its daemons are the tasks of that step";
  EXPECT_EQ(detect_launcher(lookup_in(merged(merged(two_by_two(), mpirun_rank()),
                                             {{"PMIX_NAMESPACE", "slurm.pmix.7.1"}}))),
            Launcher::slurm)
      << "srun inside mpirun";
  EXPECT_EQ(detect_launcher(
                lookup_in({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})),
            Launcher::none)
      << "a batch script is not a step";
}

TEST(OpenMpiFacts, ReadsOneHost) {
  const Facts facts = read_open_mpi(lookup_in(mpirun_rank()), "box");
  EXPECT_EQ(facts.task.rank, 1U);
  EXPECT_EQ(facts.task.local_rank, 1U);
  EXPECT_EQ(facts.task.node_rank, 0U);
  EXPECT_EQ(facts.step.task_count, 2U);
  EXPECT_EQ(facts.step.node_count, 1U);
  EXPECT_EQ(facts.step.nodes, std::vector<std::string>{"box"});
}

TEST(OpenMpiFacts, NodesAreUnknownOnSeveralHosts) {
  const auto variables =
      merged(mpirun_rank(), {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  const Facts facts = read_open_mpi(lookup_in(variables), "box");
  EXPECT_EQ(facts.step.node_count, 0U);
  EXPECT_EQ(facts.task.node_rank, std::nullopt);
}

TEST(OpenMpiFacts, DifferBetweenRunsAndAgreeBetweenRanks) {
  const auto of = [](const Variables& more) {
    return read_open_mpi(lookup_in(merged(mpirun_rank(), more)), "box").step;
  };
  EXPECT_EQ(of({}).port_key,
            of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}).port_key);
  EXPECT_NE(of({}).port_key, of({{"PMIX_NAMESPACE", "1234568.1"}}).port_key);
  EXPECT_NE(of({}).id, of({{"PMIX_NAMESPACE", "1234568.1"}}).id);
}

TEST(OpenMpiFacts, MalformedValuesAreRejected) {
  const Variables kWrong[] = {
      {{"OMPI_COMM_WORLD_SIZE", "x"}},       {{"OMPI_COMM_WORLD_RANK", "2"}},
      {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
      {{"OMPI_COMM_WORLD_LOCAL_SIZE", ""}},  {{"OMPI_COMM_WORLD_SIZE", "0"}}};
  for (const auto& wrong : kWrong) {
    EXPECT_THROW(read_open_mpi(lookup_in(merged(mpirun_rank(), wrong)), "box"), LaunchError)
        << wrong.begin()->first << "=" << wrong.begin()->second;
  }
  auto nameless = mpirun_rank();
  nameless.erase("PMIX_NAMESPACE");
  EXPECT_THROW(read_open_mpi(lookup_in(nameless), "box"), LaunchError);
  nameless["OMPI_MCA_ess_base_jobid"] = "77";
  EXPECT_NO_THROW(read_open_mpi(lookup_in(nameless), "box"));
}

}  // namespace
}  // namespace ddp::launch
