// SPDX-License-Identifier: Apache-2.0
// torchrun without options: the choice of the mode, and torchrun's settings.
#include "spank_plugin/launch/plan/torchrun_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_environment.h"
#include "spank_plugin/launch/plan/render.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/step_command.h"

namespace ddp::launch {
namespace {

using ::testing::HasSubstr;

Plan torchrun_plan(const Variables& more = {}, const std::string& spec = "torchrun") {
  return slurm_plan(merged(one_per_node(), more), asked(spec));
}

TEST(IsTorchrun, RecognizesTheProgramAndTheModule) {
  using Words = std::vector<std::string_view>;
  for (const auto& command : {Words{"torchrun", "train.py"}, Words{"/opt/venv/bin/torchrun"},
                              Words{"python3", "-m", "torch.distributed.run", "train.py"},
                              Words{"/usr/bin/python3.11", "-u", "-m", "torch.distributed.launch"},
                              Words{"python", "-W", "ignore", "-m", "torch.distributed.run"},
                              Words{"python", "-um", "torch.distributed.run"},
                              Words{"python", "-Xdev", "-mtorch.distributed.run"}}) {
    EXPECT_TRUE(is_torchrun(command)) << command.front();
  }
  for (const auto& command :
       {Words{}, Words{"python", "train.py", "-m", "torch.distributed.run"}, Words{"python", "-m"},
        Words{"bash", "-c", "torchrun"}, Words{"mytorchrun"}, Words{"./torchrun/train.py"},
        Words{"accelerate", "launch"}, Words{"python", "-m", "mytorch"}}) {
    EXPECT_FALSE(is_torchrun(command));
  }
}

TEST(StepCommand, FindsTorchrunInsideWrappers) {
  using Words = std::vector<std::string_view>;
  for (const auto& words :
       {Words{"torchrun", "train.py"},
        Words{"apptainer", "exec", "--nv", "img", "torchrun", "t.py"},
        Words{"bash", "-c", "cd x && torchrun t.py"}, Words{"numactl", "-N0", "torchrun"},
        Words{"uv", "run", "torchrun"}, Words{"conda", "run", "-n", "x", "torchrun"},
        Words{"nsys", "profile", "python", "-m", "torch.distributed.run"},
        Words{"sh", "-lc", "exec /opt/bin/torchrun t.py"}}) {
    EXPECT_TRUE(read_step_command(words).mentions_torchrun) << words.front();
    EXPECT_FALSE(read_step_command(words).is_for_each_node) << words.front();
  }
  EXPECT_FALSE(read_step_command(Words{"./run.sh"}).mentions_torchrun) << "cannot be known";
  for (const auto& words :
       {Words{"torchrun", "--standalone", "t.py"}, Words{"torchrun", "--nnodes", "1", "t.py"},
        Words{"bash", "-c", "torchrun --nnodes=1 t.py"}, Words{"torchrun", "--nnodes=1:1", "t.py"},
        Words{"accelerate", "launch", "--num_machines", "1", "t.py"},
        Words{"bash", "-c", "accelerate launch --num-machines=1 t.py"}}) {
    EXPECT_TRUE(read_step_command(words).is_for_each_node) << words.back();
  }
  for (const auto& words :
       {Words{"torchrun", "--nnodes=12", "t.py"}, Words{"torchrun", "--num_machines=1"},
        Words{"accelerate", "launch", "--num_machines", "2", "t.py"},
        Words{"accelerate", "launch", "--num_machines"},
        Words{"deepspeed", "--standalone", "t.py"}}) {
    EXPECT_FALSE(read_step_command(words).is_for_each_node) << words.back();
  }
  for (const auto& words :
       {Words{"torchrun", "--nnodes=1:3", "t.py"}, Words{"torchrun", "--nnodes", "2:3", "t.py"}}) {
    EXPECT_TRUE(read_step_command(words).may_lose_nodes) << words[1];
    EXPECT_FALSE(read_step_command(words).is_for_each_node) << words[1];
  }
  for (const auto& words :
       {Words{"torchrun", "--nnodes=1:1", "t.py"}, Words{"torchrun", "--nnodes=3", "t.py"},
        Words{"torchrun", "--nnodes=2:2", "t.py"}, Words{"torchrun", "t.py"},
        Words{"torchrun", "--standalone", "t.py"}, Words{"./run.sh", "--nnodes=1:3"}}) {
    EXPECT_FALSE(read_step_command(words).may_lose_nodes) << words[1];
  }
  EXPECT_EQ(read_step_command(Words{"accelerate", "launch", "t.py"}).other_launcher,
            "accelerate launch");
  EXPECT_EQ(read_step_command(Words{"bash", "-c", "deepspeed t.py"}).other_launcher, "deepspeed");
  EXPECT_EQ(read_step_command(Words{"accelerate", "config"}).other_launcher, "");
  const std::string long_text(1'000'000, ' ');
  EXPECT_FALSE(read_step_command(Words{long_text}).mentions_torchrun);
}

Plan plan_of_command(std::vector<std::string_view> words, const Variables& more = {},
                     const std::string& spec = "auto", const CpuFacts& cpus = {16, 16, 16}) {
  const Variables variables = merged(one_per_node(), more);
  Facts facts = slurm_facts(variables);
  facts.step.command = read_step_command(words);
  facts.task.cpus = cpus;
  return make_plan(facts, asked(spec), Inherited(lookup_in(variables), facts.step.id));
}

const Variables kFourGpus = {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}, {"SLURM_GPUS_ON_NODE", "4"}};

TEST(TorchrunBesideRanks, IsAnAgentOfTheStepInsideAnyWrapper) {
  const Plan plan = plan_of_command({"./run.sh"}, kFourGpus);
  EXPECT_EQ(plan.mode, Mode::rank);
  EXPECT_EQ(value_in(plan, "RANK"), "1");
  EXPECT_EQ(value_in(plan, "PET_NNODES"), "3");
  EXPECT_EQ(value_in(plan, "PET_NODE_RANK"), "1");
  EXPECT_EQ(value_in(plan, "PET_NPROC_PER_NODE"), "4");
  EXPECT_EQ(value_in(plan, "PET_RDZV_ID"), "100.2");
  EXPECT_EQ(value_in(plan, "PET_MASTER_ADDR"), "p1");
  EXPECT_EQ(value_in(plan, "PET_MASTER_PORT"), value_in(plan, "MASTER_PORT"));
  EXPECT_EQ(value_in(plan, "OMP_NUM_THREADS"), "4") << "the share of one worker";
  EXPECT_THAT(plan.notes, testing::ElementsAre(testing::AllOf(HasSubstr("sees 4 GPUs"),
                                                              HasSubstr("--ntasks-per-node=4"))));
  EXPECT_THAT(plan_of_command({"./run.sh"}).notes, testing::IsEmpty()) << "no GPUs, no notes";
  EXPECT_EQ(value_in(plan_of_command({"./run.sh"}), "OMP_NUM_THREADS"), "16");
  EXPECT_EQ(plan_of_command({"bash", "-c", "torchrun t.py"}).find("OMP_NUM_THREADS"), nullptr)
      << "torchrun sets 1 if the number of workers is unknown";
}

TEST(TorchrunBesideRanks, TasksMayLeaveIfTheyTrainAloneOrAreElastic) {
  EXPECT_FALSE(plan_of_command({"./run.sh"}).tasks_may_leave);
  EXPECT_FALSE(plan_of_command({"torchrun", "t.py"}, {}, "torchrun").tasks_may_leave);
  EXPECT_TRUE(plan_of_command({"torchrun", "t.py"}, {}, "torchrun,nnodes=1:3").tasks_may_leave);
  EXPECT_TRUE(plan_of_command({"./run.sh"}, {{"PET_NNODES", "1:3"}}).tasks_may_leave);
  EXPECT_TRUE(plan_of_command({"torchrun", "--standalone", "t.py"}).tasks_may_leave);
  EXPECT_TRUE(plan_of_command({"torchrun", "--nnodes=1:3", "t.py"}).tasks_may_leave);
}

TEST(TorchrunBesideRanks, GetsNoVariablesWhereItCannotBeAnAgent) {
  EXPECT_EQ(plan_of_command({"./run.sh"}, {}, "rank").find("PET_NNODES"), nullptr) << "requested";
  EXPECT_EQ(slurm_plan(two_by_two(), asked("auto")).find("PET_NNODES"), nullptr) << "two tasks";
  for (const auto* option : {"--standalone", "--nnodes=1"}) {
    const Plan alone = plan_of_command({"torchrun", option, "t.py"});
    EXPECT_EQ(alone.mode, Mode::rank);
    EXPECT_EQ(alone.find("PET_NNODES"), nullptr) << "torchrun would wait for the other nodes";
    EXPECT_THAT(alone.notes, testing::ElementsAre(HasSubstr("each of the 3 nodes by itself")));
  }
  const Plan accelerate = plan_of_command({"accelerate", "launch", "--num_machines=1", "t.py"});
  EXPECT_EQ(accelerate.find("PET_NNODES"), nullptr) << "accelerate reads it, as torchrun does";
}

TEST(TorchrunBesideRanks, OuterStepsOptionsAreRemoved) {
  const Plan outer = plan_of_command({"./run.sh"}, kFourGpus);
  Variables inherited;
  for (const auto& entry : outer.entries) inherited[entry.name] = entry.value;
  const Variables inner = merged(merged(inherited, two_by_two()), {{"PET_NPROC_PER_NODE", "2"}});
  const Plan plan = slurm_plan(inner, asked("auto"));
  ASSERT_NE(plan.find("PET_NNODES"), nullptr);
  EXPECT_TRUE(plan.find("PET_NNODES")->removed);
  EXPECT_EQ(plan.find("PET_NPROC_PER_NODE"), nullptr) << "the user changed it";
  EXPECT_THAT(render_summary(slurm_plan(merged(inherited, two_by_two()), asked("auto"))),
              testing::Not(HasSubstr("workers each")));
}

TEST(StepInsideAStep, HasNoVariableOfTheOuterPlanThatItsOwnDoesNotHave) {
  const Variables outer = merged(merged(two_by_two(), {{"SLURM_PROCID", "3"},
                                                       {"SLURM_LOCALID", "1"},
                                                       {"CUDA_VISIBLE_DEVICES", "1"},
                                                       {"SLURM_GPUS_ON_NODE", "2"}}),
                                 {{"SLURM_STEP_ID", "7"}});
  const Plan masked = slurm_plan(outer, asked("auto"));
  ASSERT_EQ(value_in(masked, "JAX_LOCAL_DEVICE_IDS"), "0");
  Variables inner;
  for (const auto& entry : masked.entries) inner[entry.name] = entry.value;
  inner = merged(
      inner, merged(two_by_two(), {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"SLURM_GPUS_ON_NODE", "2"}}));
  const Plan plan = slurm_plan(inner, asked("auto"));
  ASSERT_NE(plan.find("JAX_LOCAL_DEVICE_IDS"), nullptr);
  EXPECT_TRUE(plan.find("JAX_LOCAL_DEVICE_IDS")->removed) << "each task has a GPU of its own now";
  inner["JAX_LOCAL_DEVICE_IDS"] = "1";
  EXPECT_EQ(slurm_plan(inner, asked("auto")).find("JAX_LOCAL_DEVICE_IDS"), nullptr)
      << "the user changed it";
}

TEST(Torchrun, SeveralAgentsOnANodeGetANote) {
  const auto notes_of = [](const std::vector<std::string_view>& words) {
    Facts facts = slurm_facts(two_by_two());
    facts.step.command = read_step_command(words);
    return make_plan(facts, asked("auto"), Inherited(lookup_in(two_by_two()), facts.step.id)).notes;
  };
  EXPECT_THAT(
      notes_of({"torchrun", "t.py"}),
      testing::Contains(HasSubstr("this node runs 2 of them, which do not know each other")));
  for (const auto& words : {std::vector<std::string_view>{"torchrun", "--standalone", "t.py"},
                            std::vector<std::string_view>{"python", "t.py"}}) {
    EXPECT_THAT(notes_of(words),
                testing::Not(testing::Contains(HasSubstr("do not know each other"))));
  }
}

TEST(OtherLaunchers, GetANoteThatNamesTheAlternative) {
  EXPECT_THAT(plan_of_command({"deepspeed", "t.py"}).notes,
              testing::ElementsAre(HasSubstr("deepspeed starts processes by itself")));
  EXPECT_THAT(plan_of_command({"accelerate", "launch", "t.py"}, {}, "rank").notes,
              testing::ElementsAre(HasSubstr("accelerate launch starts processes by itself")))
      << "without PET_NNODES";
  EXPECT_THAT(plan_of_command({"accelerate", "launch", "t.py"}).notes,
              testing::ElementsAre(HasSubstr("the 3 nodes train together")));
  EXPECT_THAT(plan_of_command({"accelerate", "launch", "--num_machines=1", "t.py"}).notes,
              testing::ElementsAre(HasSubstr("has --num_machines=1: it trains on each of the 3")));
}

TEST(ChooseMode, AutoSelectsTorchrunOnlyWithOneTaskPerNode) {
  const auto mode = [](const Variables& variables, bool starts_torchrun, const std::string& spec) {
    StepFacts step = slurm_facts(variables).step;
    step.command.is_torchrun = starts_torchrun;
    return choose_mode(step, asked(spec));
  };
  EXPECT_EQ(mode(one_per_node(), true, "auto"), Mode::torchrun);
  EXPECT_EQ(mode(one_per_node(), true, ""), Mode::torchrun) << "bare --ddp";
  EXPECT_EQ(mode(one_per_node(), false, "auto"), Mode::rank);
  EXPECT_EQ(mode(two_by_two(), true, "auto"), Mode::rank);
  EXPECT_EQ(mode(one_per_node(), true, "rank"), Mode::rank);
  EXPECT_EQ(mode(one_per_node(), false, "torchrun"), Mode::torchrun);
  EXPECT_THAT([&] { mode(two_by_two(), true, "torchrun"); },
              testing::ThrowsMessage<LaunchError>(
                  HasSubstr("4 tasks run on 2 nodes; use srun --ntasks-per-node=1")));
}

TEST(Torchrun, VariablesAreShownWithTheirSource) {
  const Plan plan = torchrun_plan({{"RANK", "7"}}, "torchrun,nnodes=2:3");
  EXPECT_EQ(plan.find("PET_NNODES")->source, "--ddp");
  EXPECT_THAT(render_exports(plan), HasSubstr("unset RANK\n"));
  EXPECT_THAT(render_table(plan), HasSubstr("(removed)"));
}

TEST(Torchrun, SummaryCountsAgents) {
  EXPECT_THAT(render_summary(torchrun_plan({{"PET_NPROC_PER_NODE", "8"}})),
              testing::StartsWith("torchrun: 3 agents on 3 nodes, 8 workers each; MASTER_ADDR=p1"));
}

}  // namespace
}  // namespace ddp::launch
