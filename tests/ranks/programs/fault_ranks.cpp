// SPDX-License-Identifier: Apache-2.0
// A small training with a fault on rank 1, in the third step if the fault depends on a step. Each
// rank writes to DIRECTORY the failure it was notified of (told.R) and its exit code (exit.R), so
// that a test can verify that no rank was left behind. Timeouts are short to keep the tests short.
// Without a fault ("none") rank 0 writes its parameters; a single rank then works on the data of
// all three.
//
// Usage: fault_ranks FAULT DIRECTORY
#include <fmt/format.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <thread>

#include "base/errors.h"
#include "ddp_runtime/comm/group/launcher_rank.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"

namespace {

using ddp::comm::World;
using namespace std::chrono_literals;

constexpr int kCulprit = 1;
constexpr int kFaultyStep = 3;
constexpr int kSteps = 5;
constexpr int kRanks = 3;

// The fault in one forward pass; 0 means no signal.
struct Sabotage {
  bool leave_out_norm = false;
  int signal_before_first = 0;  // in backward, while the others wait in the buckets of `first`
  int signal_before_norm = 0;   // in backward, while the others wait in `norm`
};

// Signals this process when backward reaches `output`.
void signal_in_backward(const torch::Tensor& output, int signal) {
  if (signal != 0) output.register_hook([signal](const torch::Tensor&) { raise(signal); });
}

// Two branches, which a fault may register in a different order or extend.
struct Net : torch::nn::Module {
  Net(bool swapped, bool extra) {
    register_module("first", first);
    register_module("norm", norm);
    register_module(swapped ? "right" : "left", swapped ? right : left);
    register_module(swapped ? "left" : "right", swapped ? left : right);
    if (extra) register_module("extra", torch::nn::Linear(3, 3));
  }
  torch::Tensor forward(const torch::Tensor& x, const Sabotage& sabotage) {
    auto y = torch::tanh(first(x));
    signal_in_backward(y, sabotage.signal_before_first);
    if (!sabotage.leave_out_norm) y = norm(y);
    signal_in_backward(y, sabotage.signal_before_norm);
    return torch::tanh(left(y)) + right(y);
  }
  torch::nn::Linear first{6, 8};
  ddp::SyncBatchNorm norm{8};
  torch::nn::Linear left{8, 3};
  torch::nn::Linear right{8, 3};
};

struct Now {
  World& world;
  std::string_view fault;
  int step = 0;

  // Whether fault `name` happens on this rank and in this step.
  bool happens(std::string_view name) const {
    return fault == name && world.rank() == kCulprit && step == kFaultyStep;
  }
};

torch::Tensor data_of(const Now& now) {
  std::vector<torch::Tensor> parts;
  for (int part = now.world.rank(); part < kRanks; part += now.world.size()) {
    parts.push_back(torch::sin(torch::arange(24, torch::kFloat32) + 0.3 * now.step + part));
  }
  return torch::cat(parts).view({-1, 6});
}

torch::Tensor loss_of(Net& net, const Now& now) {
  if (now.happens("throw-in-forward")) throw std::runtime_error("bad sample 17");
  if (now.happens("wrong-shape")) net.first->forward(torch::zeros({4, 5}));
  Sabotage sabotage;
  sabotage.leave_out_norm = now.happens("leave-out-norm");
  if (now.happens("kill-in-backward")) sabotage.signal_before_first = SIGKILL;
  if (now.happens("stop-in-backward")) sabotage.signal_before_first = SIGSTOP;
  if (now.happens("kill-in-norm")) sabotage.signal_before_norm = SIGKILL;
  if (now.happens("stop-in-norm")) sabotage.signal_before_norm = SIGSTOP;
  const auto loss = net.forward(data_of(now), sabotage).pow(2).mean();
  return now.happens("nan") ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
}

void write_parameters(Net& net, const std::string& file_name) {
  std::ofstream file(file_name);
  for (const auto& tensors : {net.parameters(), net.buffers()}) {
    for (const auto& t : tensors) {
      const auto values = t.detach().to(torch::kFloat64).reshape({-1});
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        file << fmt::format("{:.9g}\n", values[i].item<double>());
      }
    }
  }
}

void train(World& world, std::string_view fault, const std::string& directory) {
  const bool culprit = world.rank() == kCulprit;
  torch::manual_seed(1);
  Net net(culprit && fault == "swapped-parameters", culprit && fault == "extra-layer");
  ddp::connect_sync_batch_norm(net, world.group());
  ddp::DataParallelOptions options;
  options.buckets = {1, 1};
  options.allow_unused = fault == "leave-out-norm";
  ddp::DistributedDataParallel replica(net, world.group(), options);
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  Now now{world, fault};
  for (now.step = 1; now.step <= kSteps; ++now.step) {
    if (now.happens("skip-step")) continue;
    if (now.happens("uneven-data"))
      return;  // this rank has no more data, and the others do not know that
    world.group().flight_recorder().set_phase(fmt::format("step {}", now.step));
    auto step = replica.begin_step(1, now.step);
    step.backward(loss_of(net, now));
    step.apply(optimizer);
  }
  if (world.is_leader()) write_parameters(net, directory + "/parameters");
}

// One message whose length differs from that of its receive.
void mismatch(World& world, std::size_t sent, std::size_t expected) {
  std::vector<float> data(64);
  auto& group = world.group();
  if (world.rank() == kCulprit)
    group.send(ddp::comm::buffer_of(std::span(data).first(sent)), 0).wait();
  if (world.rank() == 0) {
    group.receive(ddp::comm::buffer_of(std::span(data).first(expected)), kCulprit).wait();
  }
  group.barrier("after the message").wait();
}

void body(World& world, std::string_view fault, const std::string& directory) {
  if (fault == "short-message") return mismatch(world, 8, 16);
  if (fault == "long-message") return mismatch(world, 16, 8);
  train(world, fault, directory);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string fault = argv[1];
  const std::string directory = argv[2];
  ddp::comm::WorldOptions options;
  options.group.limits.timeout = 4s;
  options.group.limits.report_after = 1s;
  options.failure_dump = directory + "/failure.json";
  if (fault == "kill-before-start") {
    options.start_timeout = 3s;
    if (ddp::comm::rank_from_environment() == kCulprit) raise(SIGKILL);
  }
  int rank = 0;
  const int code = ddp::comm::run("fault_ranks", options, [&](World& world) {
    rank = world.rank();
    try {
      body(world, fault, directory);
      world.group().barrier("end of training").wait();
    } catch (const std::exception& e) {
      std::ofstream(fmt::format("{}/told.{}", directory, rank)) << e.what() << '\n';
      throw;
    }
    // Until the others have given up.
    for (int i = 0; i < 300 && fault == "hang-at-end" && rank == kCulprit; ++i) {
      if (std::filesystem::exists(options.failure_dump)) break;
      std::this_thread::sleep_for(100ms);
    }
  });
  std::ofstream(fmt::format("{}/exit.{}", directory, rank)) << code << '\n';
  return code;
}
