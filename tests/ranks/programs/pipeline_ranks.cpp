// SPDX-License-Identifier: Apache-2.0
// Trains a model of six stages with dropout as a pipeline, on any number of ranks that divides six.
// With a fault, the rank that runs stage 1 ends or throws in the second step. Each rank writes the
// text of the failure (told.R) and its exit code (exit.R) to DIRECTORY. Without one, each rank
// prints the sums of its parameters.
//
// Usage: pipeline_ranks none|throw|kill-in-warm-up|kill-in-steady-state|kill-in-cool-down DIRECTORY
//                       [REPLICAS]
#include <fmt/format.h>
#include <torch/torch.h>

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/pipeline/pipeline.h"

namespace {

using ddp::comm::World;
using ddp::pipeline::MicroBatch;
using ddp::pipeline::Pipeline;
using ddp::pipeline::PipelineOptions;
using ddp::pipeline::Schedule;
using ddp::pipeline::Stage;
using namespace std::chrono_literals;

constexpr int kStages = 6;
constexpr int kMicroBatches = 12;  // of all replicas
constexpr int kSteps = 3;
constexpr int kFaultyStage = 1;
constexpr int kFaultyStep = 2;

// Counts the calls of one stage, and does what the fault wants.
struct Fault {
  std::string_view name;
  int forwards = 0;
  int backwards = 0;

  bool is_due(int calls, int micro_batch) const {
    return calls == (kFaultyStep - 1) * kMicroBatches + micro_batch + 1;
  }
  void in_forward() {
    ++forwards;
    if (name == "throw" && is_due(forwards, 3)) throw std::runtime_error("bad sample 17");
    if (name == "kill-in-warm-up" && is_due(forwards, 0)) raise(SIGKILL);
    if (name == "kill-in-steady-state" && is_due(forwards, 7)) raise(SIGKILL);
  }
  void in_backward() {
    ++backwards;
    if (name == "kill-in-cool-down" && is_due(backwards, kMicroBatches - 1)) raise(SIGKILL);
  }
};

Stage make_layers(int number) {
  torch::manual_seed(static_cast<std::uint64_t>(number));
  return ddp::pipeline::make_stage(
      torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Dropout(0.25), torch::nn::Tanh()));
}

Stage with_fault(const Stage& stage, Fault& fault) {
  return {stage.module, [forward = stage.forward, &fault](const torch::Tensor& input) {
            fault.in_forward();
            auto output = forward(input);
            if (output.requires_grad()) {
              output.register_hook([&fault](const torch::Tensor&) { fault.in_backward(); });
            }
            return output;
          }};
}

std::vector<MicroBatch> data_of(int step, int replica, int replicas) {
  std::vector<MicroBatch> batches;
  const int count = kMicroBatches / replicas;
  for (int i = replica * count; i < (replica + 1) * count; ++i) {
    const auto values =
        torch::sin(torch::arange(32, torch::kFloat32) * (step + 1) + i).view({4, 8});
    batches.push_back({.input = values, .target = values.cos()});
  }
  return batches;
}

void train(World& world, std::string_view fault_name, int replicas) {
  auto& group = world.group();
  Fault fault{fault_name};
  std::vector<Stage> stages(kStages);
  for (const int number : ddp::pipeline::own_stages(group, kStages, replicas)) {
    auto& stage = stages[static_cast<std::size_t>(number)] = make_layers(number);
    if (number == kFaultyStage) stage = with_fault(stage, fault);
  }
  PipelineOptions options;
  options.schedule = Schedule::interleaved;
  options.replicas = replicas;
  options.seed = 5;
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  Pipeline pipe(group, std::move(stages), loss, options);
  torch::optim::SGD optimizer(pipe.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int i = 0; i < kSteps; ++i) {
    auto step = pipe.begin_step(kMicroBatches / replicas, i);
    step.backward(data_of(i, pipe.replica(), replicas));
    step.apply(optimizer);
  }
  std::string text;
  for (const auto& [name, tensor] : pipe.named_parameters()) {
    if (pipe.replica() > 0) continue;
    text +=
        fmt::format("{} {:.17g}\n", name, tensor.to(torch::kFloat64).pow(2).sum().item<double>());
  }
  for (const auto& of_rank : group.all_gather_text(text)) {
    if (world.is_leader()) fmt::print("{}", of_rank);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string fault = argv[1];
  const std::string directory = argv[2];
  const int replicas = argc > 3 ? std::stoi(argv[3]) : 1;
  ddp::comm::WorldOptions options;
  options.group.limits.timeout = 4s;
  options.group.limits.report_after = 1s;
  options.group.in_rank_order = true;
  int rank = 0;
  const int code = ddp::comm::run("pipeline_ranks", options, [&](World& world) {
    rank = world.rank();
    try {
      train(world, fault, replicas);
    } catch (const std::exception& e) {
      std::ofstream(fmt::format("{}/told.{}", directory, rank)) << e.what() << '\n';
      throw;
    }
  });
  std::ofstream(fmt::format("{}/exit.{}", directory, rank)) << code << '\n';
  return code;
}
