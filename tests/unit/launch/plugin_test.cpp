// SPDX-License-Identifier: Apache-2.0
// The built plugin, called as SLURM calls it. It must never terminate srun, slurmd or slurmstepd,
// or drain a node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "fake_slurm.h"
#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/marker.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A step for which the plugin in srun has turned planning on.
FakeSlurm planned_step(const Variables& more = {}) {
  Settings settings;
  apply(settings, parse_spec("master_addr=10.0.0.1,master_port=2222", "--ddp"),
        Origin::command_line);
  FakeSlurm slurm;
  slurm.variables =
      merged(merged(two_by_two(), {{variable::kSettings, encode_settings(settings)}}), more);
  return slurm;
}

TEST(Plugin, DoesNothingInAnyContextUnlessRequested) {
  for (const auto context :
       {S_CTX_ERROR, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_JOB_SCRIPT}) {
    FakeSlurm slurm;
    slurm.context = context;
    slurm.variables = two_by_two();
    const Transcript done = run_plugin(slurm);
    EXPECT_EQ(done.status, 0) << done.text;
    EXPECT_THAT(done.text, AllOf(HasSubstr("init: 0\n"), HasSubstr("init_post_opt: 0\n"),
                                 Not(HasSubstr("set ")), Not(HasSubstr("error: "))))
        << context;
  }
}

TEST(Plugin, SetsTheVariablesOfATask) {
  const Transcript done = run_plugin(planned_step({{"RANK", "77"}}));
  EXPECT_TRUE(done.ended_well) << done.text;
  for (const auto* line :
       {"set RANK=2\n", "set WORLD_SIZE=4\n", "set LOCAL_RANK=0\n", "set MASTER_ADDR=10.0.0.1\n",
        "set MASTER_PORT=2222\n", "task_init: 0\n"})
    EXPECT_THAT(done.text, HasSubstr(line));
}

// Returns the number of occurrences of `part` in `text`.
std::size_t count_of_text(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Plugin, SecondLineInPlugstackConfIsIgnored) {
  FakeSlurm srun;
  srun.context = S_CTX_LOCAL;
  srun.lines = 2;
  srun.shown = {variable::kComponents};
  const Transcript started = run_plugin(srun, "rank");
  EXPECT_THAT(started.text, HasSubstr(std::string("has ") + variable::kComponents + "=1\n"));
  EXPECT_EQ(count_of_text(started.text, "option ddp\n"), 1) << started.text;
  EXPECT_EQ(count_of_text(started.text, "names this plugin more than once"), 1) << started.text;

  FakeSlurm stepd = planned_step();
  stepd.lines = 2;
  const Transcript done = run_plugin(stepd);
  EXPECT_EQ(count_of_text(done.text, "set RANK=2\n"), 1) << done.text;
}

TEST(Plugin, SecondCopyInPlugstackConfDoesNothing) {
  const test::TemporaryDirectory directory;
  const std::string first = directory.path() / "ddp.so";
  std::filesystem::copy_file(SLURM_DDP_PLUGIN_FILE, first);
  FakeSlurm stepd = planned_step();
  stepd.other_plugin = first;
  EXPECT_THAT(run_plugin(stepd).text, AllOf(Not(HasSubstr("set ")), Not(HasSubstr("option ddp"))));

  setenv(variable::kSettings, "rank", 1);  // as the first copy left it
  FakeSlurm srun;
  srun.context = S_CTX_LOCAL;
  srun.other_plugin = first;
  const Transcript started = run_plugin(srun);
  unsetenv(variable::kSettings);
  EXPECT_THAT(started.text,
              AllOf(HasSubstr("settings rank\n"), Not(HasSubstr("option ddp")),
                    HasSubstr("two copies of this plugin; only the first one, " + first)));
}

TEST(Plugin, TorchrunIsRecognizedByTheStepsCommand) {
  FakeSlurm slurm = planned_step({{"SLURM_STEP_NUM_TASKS", "2"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                  {"SLURM_PROCID", "1"},
                                  {"SLURM_GTIDS", "1"},
                                  {"RANK", "77"}});
  slurm.command = {"/opt/bin/torchrun", "train.py"};
  const Transcript done = run_plugin(slurm);
  EXPECT_THAT(done.text, AllOf(HasSubstr("set PET_NODE_RANK=1\n"), HasSubstr("unset RANK\n"),
                               Not(HasSubstr("\nset RANK"))));
}

TEST(Plugin, IgnoresBatchExternalAndInteractiveSteps) {
  for (const std::uint32_t step :
       {SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT, SLURM_INTERACTIVE_STEP, SLURM_PENDING_STEP}) {
    FakeSlurm slurm = planned_step();
    slurm.step_id = step;
    EXPECT_THAT(run_plugin(slurm).text, Not(HasSubstr("set "))) << step;
  }
}

TEST(Plugin, UserInitNeverFails) {  // that would drain the node
  for (const Variables& wrong :
       std::vector<Variables>{{{"SLURM_STEP_NODELIST", "p[1-"}},
                              {{"SLURM_STEP_NUM_TASKS", "many"}},
                              {{"SLURM_STEP_TASKS_PER_NODE", "2"}},
                              {{variable::kSettings, "nonsense"}},
                              {{variable::kSettings, "error: told by srun"}},
                              {{"SLURM_STEP_RESV_PORTS", "1-"}, {variable::kSettings, "3/rank"}}}) {
    const Transcript done = run_plugin(planned_step(wrong));
    EXPECT_TRUE(done.ended_well) << done.text;
    EXPECT_THAT(done.text, HasSubstr("user_init: 0\n"));
    EXPECT_THAT(done.text, Not(HasSubstr("task_init: 0\n"))) << "the task must not run unplanned";
    EXPECT_EQ(WEXITSTATUS(done.status), 1);
  }
}

TEST(Plugin, QuotedVariableCannotAddALineToTheLog) {
  const Transcript done = run_plugin(
      planned_step({{variable::kSettings, "error: x\n[2026-01-01] error: Node n17 drained\x1b[2J" +
                                              std::string(100'000, 'y')}}));
  EXPECT_THAT(done.text,
              AllOf(HasSubstr("error: ddp: p2: x?[2026-01-01] error: Node n17 drained?[2J"),
                    Not(HasSubstr("\n[2026"))));
  EXPECT_LT(done.text.size(), 5'000U);
}

TEST(Plugin, KeepsTheUsersThreadCountButNotAContainerHooks) {
  const auto threads = [](const Variables& step, const Variables& task) {
    FakeSlurm slurm = planned_step(step);
    slurm.task_variables = task;
    return run_plugin(slurm).text;
  };
  const Variables hook = {{"OMP_NUM_THREADS", "1"}, {"PYTORCH_VERSION", "2.4"}};
  EXPECT_THAT(threads({}, hook), HasSubstr("set OMP_NUM_THREADS="));
  EXPECT_THAT(threads({{"OMP_NUM_THREADS", "1"}}, hook), Not(HasSubstr("set OMP_NUM_THREADS=")));
  EXPECT_THAT(threads({}, {{"OMP_NUM_THREADS", "1"}}), Not(HasSubstr("set OMP_NUM_THREADS=")))
      << "the image sets it itself";
  EXPECT_THAT(threads({}, {{"OMP_NUM_THREADS", "7"}, {"PYTORCH_VERSION", "2.4"}}),
              Not(HasSubstr("set OMP_NUM_THREADS=")));
}

TEST(Plugin, StepRequestedOnlyByTheSiteRunsUnplannedOnError) {
  const Transcript done = run_plugin(
      planned_step({{variable::kSettings, "1/rank"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}}));
  EXPECT_THAT(done.text,
              AllOf(HasSubstr("log: ddp: no variable is set"), HasSubstr("task_init: 0\n")));
}

TEST(Plugin, StepRequestedOnlyByTheSitePrintsNoPlan) {
  // Only rank 0 prints.
  const Variables first = {{"SLURM_PROCID", "0"},  {"SLURM_NODEID", "0"},
                           {"SLURM_GTIDS", "0,1"}, {"SLURMD_NODENAME", "p1"},
                           {"MASTER_ADDR", "p1"},  {"MASTER_PORT", "2222"},
                           {"SLURM_DDP_SET", ""}};
  const auto said = [&first](const char* settings) {
    return run_plugin(planned_step(merged(first, {{variable::kSettings, settings}}))).text;
  };
  EXPECT_THAT(said("1/rank 1/fabric=off"),
              AllOf(HasSubstr("set RANK=0\n"), Not(HasSubstr("ddp: "))));
  EXPECT_THAT(said("1/rank 1/fabric=off 1/verbose"), HasSubstr("ddp: 4 ranks on 2 nodes"));
  EXPECT_THAT(said("3/rank 1/fabric=off"), HasSubstr("ddp: 4 ranks on 2 nodes"));
}

TEST(Plugin, SurvivesAnyAnswerOfSlurm) {
  for (const auto result : {ESPANK_ERROR, ESPANK_BAD_ARG, ESPANK_NOSPACE, ESPANK_NOT_AVAIL}) {
    FakeSlurm no_variables = planned_step();
    no_variables.getenv_result = result;
    FakeSlurm no_items = planned_step();
    no_items.item_result = result;
    for (const auto& slurm : {no_variables, no_items}) {
      const Transcript done = run_plugin(slurm);
      EXPECT_EQ(done.status, 0) << done.text;
      EXPECT_THAT(done.text, Not(HasSubstr("set "))) << "the kind of step is unknown";
    }
    FakeSlurm no_setting = planned_step();
    no_setting.setenv_result = result;
    const Transcript done = run_plugin(no_setting);
    EXPECT_THAT(done.text, HasSubstr("error: ddp: p2: SLURM does not set RANK"));
    EXPECT_EQ(WEXITSTATUS(done.status), 1) << "a task without its rank must not run";
  }
}

TEST(Plugin, RejectedOptionFailsOnlyWhereTheUserSeesIt) {
  FakeSlurm slurm;
  slurm.refuses_option = true;
  for (const auto context : {S_CTX_LOCAL, S_CTX_ALLOCATOR}) {
    slurm.context = context;
    EXPECT_THAT(run_plugin(slurm).text,
                AllOf(HasSubstr("error: ddp: cannot register"), HasSubstr("init: -1\n")));
  }
  slurm.context = S_CTX_REMOTE;
  EXPECT_THAT(run_plugin(slurm).text, Not(HasSubstr("init: -1\n"))) << "that would drain the node";
}

TEST(Plugin, DetectsAnotherReleaseAndDoesNothing) {
  FakeSlurm slurm = planned_step();
  slurm.release_major = "99";
  slurm.release_minor = "11";
  const Transcript task = run_plugin(slurm);
  EXPECT_THAT(task.text,
              AllOf(ContainsRegex("built for SLURM [0-9]+.[0-9]+, but this is SLURM 99.11"),
                    Not(HasSubstr("set RANK")), HasSubstr("user_init: 0\n")));
  slurm.context = S_CTX_LOCAL;
  EXPECT_THAT(run_plugin(slurm, "auto").text,
              AllOf(HasSubstr("but this is SLURM 99.11"), HasSubstr("init_post_opt: -1\n")));
  EXPECT_THAT(run_plugin(slurm).text, Not(HasSubstr("error: "))) << "nothing was requested";
  slurm.context = S_CTX_SLURMD;
  EXPECT_THAT(run_plugin(slurm).text,
              AllOf(HasSubstr("but this is SLURM 99.11"), Not(HasSubstr("init: -1\n"))));
}

TEST(Plugin, NoExceptionEscapesWhenMemoryRunsOut) {
#ifdef SLURM_DDP_SANITIZED
  GTEST_SKIP() << "the sanitizer has its own malloc";
#endif
  for (const auto context : {S_CTX_REMOTE, S_CTX_LOCAL, S_CTX_SLURMD, S_CTX_JOB_SCRIPT}) {
    FakeSlurm slurm = planned_step();
    slurm.context = context;
    slurm.plugin_arguments = {"default=auto", "nonsense=1"};
    bool all_done = false;
    unsigned failing = 1;
    for (; !all_done && failing < 3000; ++failing) {
      const Transcript done = run_plugin(slurm, "auto", failing);
      // The C++ library's directory iterator terminates a process that is out of memory. In
      // task_init, after user_init, it terminates only the task; anywhere else, it would terminate
      // srun or slurmstepd.
      const bool is_task = done.text.find("user_init: 0\n") != std::string::npos;
      ASSERT_TRUE(done.ended_well || (is_task && WIFSIGNALED(done.status)))
          << "allocation " << failing << " failed, status " << done.status << ": " << done.text;
      if (context != S_CTX_LOCAL) {
        ASSERT_THAT(done.text, Not(HasSubstr("init: -1\n"))) << "that would drain the node";
      }
      all_done = done.text.find("allocations left: 0") == std::string::npos &&
                 done.text.find("allocations left") != std::string::npos;
    }
    EXPECT_TRUE(all_done);
    EXPECT_GT(failing, 5U) << "nothing was tested";
  }
}

TEST(Plugin, SrunInsideATaskDropsTheOuterStepsTasksPerNode) {
  FakeSlurm slurm;
  slurm.context = S_CTX_LOCAL;
  const auto inside = [&slurm](const char* marker) {
    setenv("SLURM_JOB_ID", "100", 1);
    setenv("SLURM_NTASKS_PER_NODE", "2", 1);
    setenv(variable::kMarker, marker, 1);
    return run_plugin(slurm, "auto").text;
  };
  const auto is_forgotten = Not(HasSubstr("tasks per node 2\n"));
  EXPECT_THAT(inside("100.0:SLURM_NTASKS_PER_NODE,MASTER_ADDR:"), is_forgotten);
  EXPECT_THAT(inside("100.0:MASTER_ADDR:"), Not(is_forgotten)) << "set by SLURM as an option";
  EXPECT_THAT(inside("99.0:SLURM_NTASKS_PER_NODE:"), Not(is_forgotten)) << "from another job";
  EXPECT_THAT(inside("nonsense"), Not(is_forgotten));
  slurm.context = S_CTX_ALLOCATOR;
  EXPECT_THAT(inside("100.0:SLURM_NTASKS_PER_NODE:"), is_forgotten)
      << "it is useless for a new job";
  for (const auto* name : {"SLURM_JOB_ID", "SLURM_NTASKS_PER_NODE", variable::kMarker})
    unsetenv(name);
}

TEST(Plugin, WhatATaskSubmitsOrStartsWithoutDdpHasNotItsRank) {
  const Variables task = {{"RANK", "3"},
                          {"LOCAL_RANK", "3"},
                          {"MASTER_PORT", "61100"},
                          {"OMP_NUM_THREADS", "9"},
                          {"SLURM_DDP_STEP_KEY", "100.0:abc"}};
  const auto left = [&](spank_context_t context, const char* spec, const char* marker) {
    for (const auto& [name, value] : task) setenv(name.c_str(), value.c_str(), 1);
    if (marker != nullptr) setenv(variable::kMarker, marker, 1);
    FakeSlurm slurm;
    slurm.context = context;
    slurm.shown = {
        "RANK",           "LOCAL_RANK", "MASTER_PORT", "OMP_NUM_THREADS", "SLURM_DDP_STEP_KEY",
        variable::kMarker};
    std::string text = run_plugin(slurm, spec).text;
    for (const auto& [name, value] : task) unsetenv(name.c_str());
    unsetenv(variable::kMarker);
    return text;
  };
  const std::string marker = "100.0:MASTER_PORT=" + hash_for_marker("61100") +
                             ",OMP_NUM_THREADS=" + hash_for_marker("4") + ":";
  const auto is_forgotten =
      AllOf(Not(HasSubstr("has RANK")), Not(HasSubstr("has LOCAL_RANK")),
            Not(HasSubstr("has MASTER_PORT")), Not(HasSubstr("has SLURM_DDP_STEP_KEY=100")),
            HasSubstr("has OMP_NUM_THREADS=9\n"), Not(HasSubstr("has SLURM_DDP_SET")));
  for (const auto context : {S_CTX_ALLOCATOR, S_CTX_LOCAL}) {
    EXPECT_THAT(left(context, "off", marker.c_str()), is_forgotten);
    EXPECT_THAT(left(context, "off", nullptr), HasSubstr("has RANK=3\n"))
        << "the value is the user's, not from a plan";
  }
  EXPECT_THAT(left(S_CTX_LOCAL, "auto", marker.c_str()), HasSubstr("has SLURM_DDP_SET"))
      << "the plan of the inner step needs it";
}

TEST(Plugin, WarnsIfTheContainerPluginComesAfterIt) {
  const test::TemporaryDirectory directory;
  const auto pyxis = directory.path() / "spank_pyxis.so";  // any library works
  std::filesystem::copy_file(SLURM_DDP_PLUGIN_FILE, pyxis);
  const auto said = [&](spank_context_t context, bool is_later) {
    FakeSlurm slurm;
    slurm.context = context;
    slurm.other_plugin = pyxis;
    slurm.other_plugin_is_later = is_later;
    return run_plugin(slurm, "auto").text;
  };
  const auto told = HasSubstr("ddp.so comes before spank_pyxis.so");
  EXPECT_THAT(said(S_CTX_SLURMD, true), told);
  EXPECT_THAT(said(S_CTX_SLURMD, false), Not(told));
  EXPECT_THAT(said(S_CTX_LOCAL, true), Not(told)) << "no container";
  setenv("SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image", "x", 1);
  EXPECT_THAT(said(S_CTX_LOCAL, true), told);
  EXPECT_THAT(said(S_CTX_LOCAL, false), Not(told));
  unsetenv("SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image");
}

TEST(Plugin, OptionCallbacksAcceptAnyText) {
  FakeSlurm slurm;
  slurm.context = S_CTX_LOCAL;
  EXPECT_THAT(run_plugin(slurm, "").text,
              AllOf(HasSubstr("callback: 0\n"), HasSubstr("settings 3/auto ")));
  EXPECT_THAT(run_plugin(slurm, "(null)").text, HasSubstr("callback: 0\n"));
  const std::string long_spec(1'000'000, 'x');
  EXPECT_THAT(run_plugin(slurm, long_spec.c_str()).text, HasSubstr("callback: -1\n"));
  slurm.context = S_CTX_REMOTE;
  EXPECT_THAT(run_plugin(slurm, "bogus").text, HasSubstr("callback: 0\n"))
      << "srun has already reported it";
}

TEST(Plugin, FenceThatWaitsIsOfThisStepOnly) {
  FakeSlurm srun;
  srun.context = S_CTX_LOCAL;
  srun.shown = {"SLURM_PMIX_FENCE", "SLURM_DDP_PMIX_FENCE"};
  EXPECT_THAT(run_plugin(srun, "auto").text,
              HasSubstr("has SLURM_PMIX_FENCE=ring\nhas SLURM_DDP_PMIX_FENCE=1\n"));
  setenv("SLURM_PMIX_FENCE", "mixed", 1);
  EXPECT_THAT(run_plugin(srun, "auto").text, AllOf(HasSubstr("has SLURM_PMIX_FENCE=mixed\n"),
                                                   Not(HasSubstr("has SLURM_DDP_PMIX"))));
  unsetenv("SLURM_PMIX_FENCE");
  const Variables ours = {{"SLURM_PMIX_FENCE", "ring"}, {"SLURM_DDP_PMIX_FENCE", "1"}};
  EXPECT_THAT(
      run_plugin(planned_step(ours)).text,
      AllOf(HasSubstr("unset SLURM_PMIX_FENCE\n"), HasSubstr("unset SLURM_DDP_PMIX_FENCE\n")));
  EXPECT_THAT(run_plugin(planned_step({{"SLURM_PMIX_FENCE", "ring"}})).text,
              Not(HasSubstr("unset SLURM_PMIX")))
      << "the user's";
}

// A stand-in for scontrol, because there is no slurmctld here. The test does not depend on a name
// service.
TEST(Plugin, SrunAsksForTheAddressesOfTheNodesOnce) {
  const test::TemporaryDirectory directory;
  const auto program = directory.path() / "scontrol";
  test::write(program,
              "#!/bin/sh\n[ \"$*\" = \"--oneliner show node $SLURM_NODELIST\" ] || exit 1\n"
              "echo NodeName=p1 NodeAddr=10.0.0.1\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  const std::string path = std::getenv("PATH");
  setenv("PATH", (directory.path().string() + ":" + path).c_str(), 1);
  const auto told = [](const std::string& nodes, const char* spec, std::uint32_t count = 2) {
    FakeSlurm srun;
    srun.context = S_CTX_LOCAL;
    srun.node_count = count;
    srun.shown = {variable::kNodeAddresses};
    setenv("SLURM_NODELIST", nodes.c_str(), 1);
    const std::string text = run_plugin(srun, spec).text;
    EXPECT_THAT(text, HasSubstr("local_user_init: 0\n"));
    return text.find("has SLURM_DDP_NODE_ADDR=p1=10.0.0.1\n") != std::string::npos;
  };
  const std::string nodes = "p1,p2";
  EXPECT_TRUE(told(nodes, "auto"));
  EXPECT_FALSE(told(nodes, "auto", 1)) << "a step of one node";
  EXPECT_FALSE(told(nodes, "master_addr=here")) << "the user gives the address";
  EXPECT_FALSE(told(nodes, "off"));
  EXPECT_FALSE(told("n[1-", "auto")) << "an error in the list is left to the tasks";
  setenv("PATH", path.c_str(), 1);
  unsetenv("SLURM_NODELIST");
}

}  // namespace
}  // namespace ddp::launch
