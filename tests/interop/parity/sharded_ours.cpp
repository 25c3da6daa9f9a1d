// SPDX-License-Identifier: Apache-2.0
// One rank of training runs of the built-in models, whose ranks divide the optimizer, the gradients
// or the parameters among themselves. Writes all parameters after every step. sharded_theirs.py
// does the same in Python.
//
// Usage: parity_sharded_ours STEPS DIRECTORY       DIRECTORY has cases.json: cases.sharded()
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "tests/interop/parity/net.h"
#include "tests/interop/parity/optimizers.h"

namespace parity {
namespace {

using nlohmann::json;

constexpr std::int64_t kSamples = 6;

struct ShardedCase {
  Case run;
  ddp::models::ModelOptions model;
};

std::vector<ShardedCase> read_cases(const std::string& directory) {
  std::ifstream file(directory + "/cases.json");
  std::vector<ShardedCase> cases;
  for (const auto& o : json::parse(file)) {
    const auto& model = o.at("model");
    cases.push_back({.run = {.name = o.at("name"),
                             .optimizer = o.at("optimizer"),
                             .options = o.at("options"),
                             .type = o.at("type")},
                     .model = {.name = model.at("model"),
                               .input = model.at("input"),
                               .classes = model.at("classes"),
                               .width = model.at("width"),
                               .layers = model.at("layers"),
                               .heads = model.at("heads"),
                               .tokens = model.at("tokens")}});
  }
  return cases;
}

// One rank's run.
class ShardedTraining {
 public:
  ShardedTraining(ddp::comm::World& world, const ShardedCase& run, const std::string& shard)
      : run_(run),
        rank_(world.rank()),
        type_(run.run.type == "fp64" ? torch::kFloat64 : torch::kFloat32),
        model_(ddp::models::make_model(run.model)) {
    model_->to(type_);
    set_first_values();
    auto optimizer = make_optimizer(run.run, Library::ours, *model_, model_->parameters());
    // Small enough that the model has several buckets.
    const ddp::DataParallelOptions options{.buckets = {256, 2048}};
    if (shard == "optimizer") {
      replica_ = std::make_unique<ddp::DistributedDataParallel>(*model_, world.group(), options);
      optimizer_.emplace(std::move(optimizer), world.group());
      return;
    }
    const bool parameters = shard == "parameters";
    auto replica = std::make_unique<ddp::ShardedDataParallel>(
        *model_, world.group(),
        ddp::ShardOptions{.shard = parameters ? ddp::Shard::parameters : ddp::Shard::gradients,
                          .units = parameters ? model_->units() : std::vector<std::string>(),
                          .data_parallel = options});
    optimizer_.emplace(std::move(optimizer), *replica);
    divided_ = replica.get();
    replica_ = std::move(replica);
  }

  void step(std::int64_t number) {
    auto step = replica_->begin_step();
    step.backward(loss(number));
    step.apply(*optimizer_);
  }

  void write_values(std::ofstream& file) const {
    std::optional<ddp::WholeParameters> whole;
    if (divided_ != nullptr) whole.emplace(*divided_);
    for (const auto& p : model_->parameters()) {
      const auto values = p.detach().contiguous();
      file.write(static_cast<const char*>(values.data_ptr()),
                 static_cast<std::streamsize>(values.nbytes()));
    }
  }

 private:
  // Every rank starts with different values, and rank 0's must win.
  void set_first_values() {
    const torch::NoGradGuard no_grad;
    int number = 0;
    for (auto& p : model_->parameters()) {
      // Rounded as in Python, which a sum of phases would not be.
      p.copy_(0.3 * wave(p.numel(), 0.7, rank_ + 1.3 * number++, type_).view(p.sizes()));
    }
  }

  torch::Tensor loss(std::int64_t step) {
    const auto& model = run_.model;
    auto shape = model.input;
    shape.insert(shape.begin(), kSamples);
    const auto count = c10::multiply_integers(shape);
    torch::Tensor inputs;
    torch::Tensor targets;
    if (model.tokens) {
      const auto index = torch::arange(count);
      inputs = torch::remainder(index * index + 5 * step + 11 * rank_, model.classes).view(shape);
      targets = torch::remainder(3 * inputs + 1, model.classes).flatten();
    } else {
      const double phase = 0.11 * static_cast<double>(step) + 0.53 * rank_;
      inputs = wave(count, 0.37, phase, type_).view(shape);
      targets = torch::remainder(3 * torch::arange(kSamples) + rank_, model.classes);
    }
    return torch::nn::functional::cross_entropy(model_->forward(inputs).flatten(0, -2), targets);
  }

  const ShardedCase& run_;
  int rank_;
  torch::ScalarType type_;
  std::shared_ptr<ddp::models::Model> model_;
  std::unique_ptr<ddp::DistributedDataParallel> replica_;
  ddp::ShardedDataParallel* divided_ = nullptr;  // replica_, unless only the optimizer is divided
  std::optional<ddp::ShardedOptimizer> optimizer_;
};

void train(ddp::comm::World& world, const ShardedCase& run, const std::string& shard,
           std::int64_t steps, const std::string& path) {
  ShardedTraining training(world, run, shard);
  std::ofstream file(path, std::ios::binary);
  for (std::int64_t s = 0; s < steps; ++s) {
    training.step(s);
    training.write_values(file);
  }
  file.close();
  if (!file) throw ddp::RuntimeError("cannot write the parameters to " + path);
}

void train_all(ddp::comm::World& world, std::int64_t steps, const std::string& directory) {
  const auto cases = read_cases(directory);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const std::string shard : {"optimizer", "gradients", "parameters"}) {
      train(world, cases[i], shard, steps,
            fmt::format("{}/ours-{}-{}-{}", directory, i, shard, world.rank()));
    }
  }
  if (world.is_leader()) std::ofstream(directory + "/ours-release") << TORCH_VERSION;
}

}  // namespace
}  // namespace parity

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return ddp::comm::run("parity_sharded_ours", {}, [&](ddp::comm::World& world) {
    parity::train_all(world, std::atoi(argv[1]), argv[2]);
  });
}
