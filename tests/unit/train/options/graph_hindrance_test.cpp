// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/graph_hindrance.h"

#include <gmock/gmock.h>

#include "base/errors.h"
#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(GraphHindrance, NamesTheFirstThingThatHindersAGraph) {
  EXPECT_EQ(graph_hindrance({}), "");
  struct Hindered {
    GraphFacts facts;
    const char* text;
  };
  const Hindered cases[] = {
      {{.on_cpu = true}, "the model is on the CPU, which has no graphs"},
      {{.asynchronous = true}, "the ranks train asynchronously"},
      {{.task = {.communicates_in_forward = true}},
       "SyncBatchNorm layers communicate in the middle of forward and backward"},
      {{.task = {.own_optimizer = true}}, "the optimizer is the task's own"},
      {{.task = {.weighs_batches = true}}, "the weights of the batches are numbers of the host"},
      {{.micro_batches = 4}, "a step has 4 micro-batches, and only steps of one are captured"},
      {{.comm_hook = true}, "a communication hook runs on the host in each step"},
      {{.shortens_gradients = true},
       "gradients are rounded before they are sent (--reduce-type bf16)"},
      {{.allow_unused = true}, "unused parameters are allowed, so steps may differ"},
      {{.shards = true}, "the optimizer is divided among the ranks (--shard)"},
      {{.offloads = true}, "the optimizer's state is on the host (--offload-optimizer)"},
      {{.no_graphs = "there are none"}, "there are none"},
      {{.on_cpu = true, .micro_batches = 2, .no_graphs = "there are none"},
       "the model is on the CPU, which has no graphs"},
  };
  for (const auto& [facts, text] : cases) EXPECT_EQ(graph_hindrance(facts), text);
}

TEST(GraphHindrance, OnlyAutoContinuesWithoutAGraph) {
  TrainOptions options;
  options.graph.make = [](torch::Device) -> std::unique_ptr<DeviceGraph> {
    throw UsageError("there are no graphs here");
  };
  EXPECT_EQ(plan_graph(torch::kCPU, {}, options).hindrance, "");
  options.graph.mode = GraphMode::automatic;
  EXPECT_EQ(plan_graph(torch::kCUDA, {}, options).hindrance, "there are no graphs here");
  EXPECT_THAT(plan_graph(torch::kCPU, {}, options).hindrance, HasSubstr("on the CPU"));
  options.staleness = 1;
  EXPECT_THAT(plan_graph(torch::kCUDA, {}, options).hindrance, HasSubstr("asynchronously"));
  options.staleness.reset();
  options.parallel.allow_unused = true;
  EXPECT_THAT(plan_graph(torch::kCUDA, {}, options).hindrance, HasSubstr("unused parameters"));
  options.parallel.allow_unused = false;
  EXPECT_THAT(plan_graph(torch::kCUDA, {.communicates_in_forward = true}, options).hindrance,
              HasSubstr("SyncBatchNorm"));
  options.graph.mode = GraphMode::on;
  EXPECT_EQ(
      error_of([&] { plan_graph(torch::kCUDA, {}, options); }),
      "--graph on: steps cannot be captured as a graph, because there are no graphs here; use "
      "--graph auto or off");
}

TEST(GraphHindrance, ReadsTheNamesThatItWrites) {
  for (const char* name : {"off", "auto", "on"}) {
    EXPECT_EQ(graph_mode_name(parse_graph_mode(name)), name);
  }
  EXPECT_EQ(error_of([] { parse_graph_mode("yes"); }),
            "--graph must be auto, on or off, not 'yes'");
}

TEST(GraphHindrance, SaysWhyThisProgramHasNoGraphsOfCuda) {
  EXPECT_EQ(error_of([] { make_cuda_graph(torch::kCPU); }),
            "there are no graphs for cpu, only for GPUs");
  EXPECT_EQ(error_of([] { make_cuda_graph(torch::kCUDA); }),
            "libtorch's CUDA half is not loaded, see load_cuda()");
  EXPECT_THAT(error_of([] {
                load_graph({"/nowhere/a.so", "/nowhere/b.so"}, 0);
              }),
              AllOf(StartsWith("the library of CUDA graphs, which a build with a PyTorch for CUDA"),
                    HasSubstr("/nowhere/a.so: cannot open"), HasSubstr("/nowhere/b.so: cannot")));
  EXPECT_EQ(error_of([] { load_graph({"libm.so.6"}, 0); }),
            "libm.so.6 has no slurm_ddp_make_cuda_graph");
}

}  // namespace
}  // namespace ddp::train
