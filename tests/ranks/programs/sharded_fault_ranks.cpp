// SPDX-License-Identifier: Apache-2.0
// A small sharded training in which rank 1 dies in the third step, at a place where the others wait
// for it in a chosen collective, or does something else than the others. Each rank writes to
// DIRECTORY the failure that it was notified of (told.R) and its exit code (exit.R).
//
// Usage: sharded_fault_ranks STRATEGY PLACE DIRECTORY
//   STRATEGY  optimizer, gradients, parameters or hybrid
//   PLACE     forward: before a unit is gathered; backward: before gradients are reduced;
//             update: between the update of its rows and the exchange of what was updated;
//             next-step: between that and the next step; evaluation: in a pass between two steps
//             Rank 1 differs in its number of micro-batches (micro-batches), calls units in another
//             order where no gradients are needed (order), or catches an error in forward, and
//             begins the next step (caught).
#include <fmt/format.h>
#include <torch/torch.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"

namespace {

using ddp::Shard;
using ddp::comm::World;
using namespace std::chrono_literals;

constexpr int kCulprit = 1;
constexpr int kFaultyStep = 3;
constexpr int kSteps = 5;
constexpr std::int64_t kWidth = 64;

struct Death {
  std::string place;
  bool is_mine = false;
  int step = 0;

  bool is_at(std::string_view here) const {
    return is_mine && step == kFaultyStep && place == here;
  }
  void at(std::string_view here) const {
    if (is_at(here)) raise(SIGKILL);
  }
};

struct Net : torch::nn::Module {
  explicit Net(const Death& of_run) : death(of_run) {
    for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(kWidth, kWidth));
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const std::size_t i : order) {
      if (i == 1 && death.is_at("caught")) throw std::runtime_error("bad sample 17");
      if (i == 1) death.at(torch::GradMode::is_enabled() ? "forward" : "evaluation");
      x = torch::tanh(ddp::unit(layers->ptr<torch::nn::LinearImpl>(i))(x));
      if (i == 1 && x.requires_grad()) {
        x.register_hook([this](const torch::Tensor&) { death.at("backward"); });
      }
    }
    return x;
  }
  torch::nn::ModuleList layers;
  std::vector<std::size_t> order = {0, 1, 2};
  const Death& death;
};

struct Sgd : torch::optim::SGD {
  Sgd(std::vector<torch::Tensor> parameters, const Death& of_run)
      : SGD(std::move(parameters), 0.1), death(of_run) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    auto loss = SGD::step(std::move(closure));
    death.at("update");
    return loss;
  }
  const Death& death;
};

Shard strategy_named(std::string_view name) {
  if (name == "optimizer") return Shard::optimizer;
  if (name == "gradients") return Shard::gradients;
  if (name == "keep" || name == "parameters") return Shard::parameters;
  if (name == "hybrid") return Shard::hybrid;
  throw ddp::UsageError(fmt::format("unknown strategy '{}'", name));
}

void forward_without_gradients(Net& net, const torch::Tensor& x) {
  const torch::NoGradGuard no_grad;
  if (net.death.is_at("order")) net.order = {1, 0, 2};
  net.forward(x);
  net.order = {0, 1, 2};
}

void make_step(Net& net, ddp::DistributedDataParallel& replica, torch::optim::Optimizer& optimizer,
               const torch::Tensor& x) {
  const int micro_batches =
      net.death.place == "micro-batches" ? (net.death.is_at("micro-batches") ? 3 : 2) : 1;
  auto step = replica.begin_step(micro_batches);
  if (net.death.place == "order") forward_without_gradients(net, x);
  for (int i = 0; i < micro_batches; ++i) step.backward(net.forward(x).square().mean());
  step.apply(optimizer);
}

void train(World& world, Shard shard, Death& death) {
  torch::manual_seed(1);
  Net net(death);
  std::unique_ptr<torch::optim::Optimizer> optimizer =
      std::make_unique<Sgd>(net.parameters(), death);
  std::unique_ptr<ddp::DistributedDataParallel> replica;
  if (shard == Shard::optimizer) {
    replica = std::make_unique<ddp::DistributedDataParallel>(net, world.group());
    optimizer = std::make_unique<ddp::ShardedOptimizer>(std::move(optimizer), world.group());
  } else {
    ddp::ShardOptions options;
    options.shard = shard;
    if (shard == Shard::parameters) options.units = {"layers.*"};
    auto sharded = std::make_unique<ddp::ShardedDataParallel>(net, world.group(), options);
    optimizer = std::make_unique<ddp::ShardedOptimizer>(std::move(optimizer), *sharded);
    replica = std::move(sharded);
  }
  const auto x = torch::sin(torch::arange(4 * kWidth, torch::kFloat32)).view({4, kWidth});
  for (death.step = 1; death.step <= kSteps; ++death.step) {
    world.group().flight_recorder().set_phase(fmt::format("step {}", death.step));
    try {
      make_step(net, *replica, *optimizer, x + world.rank());
    } catch (const std::runtime_error&) {
      if (!death.is_at("caught")) throw;
      continue;
    }
    death.at("next-step");
    const torch::NoGradGuard no_grad;
    ddp::ForwardPasses passes(net);
    passes.begin();
    net.forward(x);
    passes.end();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string strategy = argv[1];
  const std::string directory = argv[3];
  ddp::comm::WorldOptions options;
  options.group.limits.timeout = 4s;
  options.group.limits.report_after = 1s;
  int rank = 0;
  const int code = ddp::comm::run("fault_ranks", options, [&](World& world) {
    rank = world.rank();
    Death death{.place = argv[2], .is_mine = rank == kCulprit};
    try {
      train(world, strategy_named(strategy), death);
      world.group().barrier("end of training").wait();
    } catch (const std::exception& e) {
      std::ofstream(fmt::format("{}/told.{}", directory, rank)) << e.what() << '\n';
      throw;
    }
  });
  std::ofstream(fmt::format("{}/exit.{}", directory, rank)) << code << '\n';
  return code;
}
