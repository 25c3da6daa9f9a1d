// SPDX-License-Identifier: Apache-2.0
// One rank of training runs with ddp::DistributedDataParallel. Writes all parameters after every
// step. theirs.py does the same in Python.
//
// Each run is made twice: with the optimizer that a user of this project has, whose buckets are
// updated as they arrive where that is possible, and with libtorch's, after all gradients.
//
// Usage: parity_ours STEPS DIRECTORY       DIRECTORY has cases.json (cases.py)
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/train/model/bf16_weights.h"
#include "tests/interop/parity/net.h"
#include "tests/interop/parity/optimizers.h"

namespace parity {
namespace {

using ddp::amp::Precision;

std::vector<Case> read_cases(const std::string& directory) {
  std::ifstream file(directory + "/cases.json");
  std::vector<Case> cases;
  for (const auto& o : nlohmann::json::parse(file)) {
    cases.push_back({o.at("name"), o.at("micro_batches"), o.at("optimizer"), o.at("options"),
                     o.at("like_ddp_train"), o.at("type")});
  }
  return cases;
}

Precision precision_of(const Case& run) {
  if (run.type == "fp16") return Precision::fp16;
  return run.type.starts_with("bf16") ? Precision::bf16 : Precision::fp32;
}

// One rank's run.
class Training {
 public:
  Training(ddp::comm::World& world, const Case& run, Library library)
      : run_(run),
        library_(library),
        rank_(world.rank()),
        type_(run.type == "fp64" ? torch::kFloat64 : torch::kFloat32),
        net_(rank_, type_) {
    ddp::amp::require_precision(torch::kCPU, precision_of(run));
    if (run.type == "bf16_weights") ddp::train::use_bf16_weights(net_);
    // Small enough that the model has several buckets.
    const ddp::DataParallelOptions options{.buckets = {256, 2048}};
    replica_.emplace(net_, world.group(), options);
    make_optimizer_and_values();
    if (run.type == "fp16") scaler_.emplace();
  }

  void step(std::int64_t number) {
    if (scaler_) replica_->set_loss_scale(scaler_->scale());
    auto step = replica_->begin_step(run_.micro_batches);
    for (int m = 0; m + 1 < run_.micro_batches; ++m) step.backward(loss(number, m));
    const auto last = loss(number, run_.micro_batches - 1);
    if (library_ == Library::ours && run_.micro_batches == 1 && !scaler_) {
      step.backward_and_apply(last, *optimizer_);
    } else {
      step.backward(last);
      update(step);
    }
    require_rounded_masters();
  }

  // What the optimizer updates: parameters, or their masters.
  void write_values(std::ofstream& file) const {
    for (const auto& v : values_) {
      const auto values = v.detach().contiguous();
      file.write(static_cast<const char*>(values.data_ptr()),
                 static_cast<std::streamsize>(values.nbytes()));
    }
  }

 private:
  // libtorch's optimizer gets masters that are kept by hand.
  void make_optimizer_and_values() {
    for (const auto& p : net_.parameters()) {
      const bool by_hand = library_ == Library::libtorch && p.scalar_type() == torch::kBFloat16;
      values_.push_back(by_hand ? p.detach().to(torch::kFloat32).requires_grad_(true) : p);
    }
    optimizer_ = make_optimizer(run_, library_, net_, values_);
    auto* const keeper = dynamic_cast<ddp::optim::KeepsMasters*>(optimizer_.get());
    // ddp-train calls this whatever the type of the parameters is.
    if (keeper == nullptr || !(run_.like_ddp_train || run_.type == "bf16_weights")) return;
    keeper->keep_masters();
    for (auto& v : values_) v = keeper->masters()->values_of(v);
  }

  torch::Tensor loss(std::int64_t step, int micro_batch) {
    const ddp::amp::AutocastGuard autocast(torch::kCPU, precision_of(run_));
    const auto loss = loss_of(net_, step, rank_, micro_batch, type_);
    return scaler_ ? scaler_->scale_loss(loss) : loss;
  }

  void update(ddp::GradientStep& step) {
    const bool finite = !scaler_ || scaler_->unscale(net_.parameters());
    if (finite) library_ == Library::ours ? step.apply(*optimizer_) : update_by_libtorch(step);
    if (scaler_) scaler_->update(finite);
  }

  void update_by_libtorch(ddp::GradientStep& step) {
    const torch::NoGradGuard no_grad;
    const auto parameters = net_.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (values_[i].is_same(parameters[i])) continue;
      values_[i].mutable_grad() = parameters[i].grad().to(torch::kFloat32);
    }
    step.apply(*optimizer_);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!values_[i].is_same(parameters[i])) parameters[i].copy_(values_[i]);
    }
  }

  void require_rounded_masters() const {
    const auto parameters = net_.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (torch::equal(values_[i].to(parameters[i].scalar_type()), parameters[i])) continue;
      throw ddp::RuntimeError(run_.name + ": the weights are not the masters, rounded");
    }
  }

  const Case& run_;
  Library library_;
  int rank_;
  torch::ScalarType type_;
  Net net_;
  std::optional<ddp::DistributedDataParallel> replica_;
  std::vector<torch::Tensor> values_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<ddp::amp::GradScaler> scaler_;
};

void train(ddp::comm::World& world, const Case& run, Library library, std::int64_t steps,
           const std::string& path) {
  Training training(world, run, library);
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
    for (const auto library : {Library::ours, Library::libtorch}) {
      const auto path =
          fmt::format("{}/{}-{}-{}", directory, library == Library::ours ? "ours" : "libtorch", i,
                      world.rank());
      train(world, cases[i], library, steps, path);
    }
  }
  if (world.is_leader()) std::ofstream(directory + "/ours-release") << TORCH_VERSION;
}

}  // namespace
}  // namespace parity

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return ddp::comm::run("parity_ours", {}, [&](ddp::comm::World& world) {
    parity::train_all(world, std::atoi(argv[1]), argv[2]);
  });
}
