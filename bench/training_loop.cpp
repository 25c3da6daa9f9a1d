// SPDX-License-Identifier: Apache-2.0
#include "bench/training_loop.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/model/channels_last.h"

namespace ddp::bench {
namespace {

amp::Precision autocast_of(const Computation& how) {
  return how.bf16 ? amp::Precision::bf16 : amp::Precision::fp32;
}

std::shared_ptr<models::Model> seeded_model(const models::ModelOptions& options,
                                            const Computation& how) {
  amp::require_precision(how.device.type(), autocast_of(how));
  torch::manual_seed(1);
  auto model = models::make_model(options);
  model->to(how.device);
  if (how.channels_last) train::store_channels_last(*model, options.name);
  return model;
}

template <class Theirs, class Ours, class Options>
std::unique_ptr<torch::optim::Optimizer> optimizer_over(std::vector<torch::Tensor> parameters,
                                                        const Options& options,
                                                        TrainingLoop::Library library) {
  if (library == TrainingLoop::Library::ours) {
    return std::make_unique<Ours>(std::move(parameters), options);
  }
  return std::make_unique<Theirs>(std::move(parameters), options);
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<torch::Tensor> parameters,
                                                        const std::string& name,
                                                        TrainingLoop::Library library) {
  using namespace torch::optim;
  const double rate = learning_rate_of(name);
  if (name == "sgd") {
    return optimizer_over<SGD, ddp::optim::SGD>(std::move(parameters),
                                                SGDOptions(rate).momentum(0.9), library);
  }
  if (name == "adam") {
    return optimizer_over<Adam, ddp::optim::Adam>(std::move(parameters), AdamOptions(rate),
                                                  library);
  }
  if (name == "adamw") {
    return optimizer_over<AdamW, ddp::optim::AdamW>(std::move(parameters), AdamWOptions(rate),
                                                    library);
  }
  throw UsageError(fmt::format("unknown optimizer '{}'; use sgd, adam or adamw", name));
}

double learning_rate_of(const std::string& optimizer) {
  return optimizer == "sgd" ? 0.01 : 1e-4;
}

const char* precision_of(const Computation& how) {
  return how.bf16 ? "bf16" : "fp32";
}

TrainingLoop::TrainingLoop(const models::ModelOptions& options, std::int64_t batch,
                           const std::string& optimizer, Library library, const Computation& how)
    : how_(how),
      model_(seeded_model(options, how)),
      optimizer_(make_optimizer(model_->parameters(), optimizer, library)) {
  auto sizes = options.input;
  sizes.insert(sizes.begin(), batch);
  if (options.tokens) {
    inputs_ = torch::randint(0, options.classes, sizes, torch::kInt64);
    targets_ = torch::randint(0, options.classes, sizes, torch::kInt64);
  } else {
    inputs_ = torch::randn(sizes);
    targets_ = torch::randint(0, options.classes, {batch}, torch::kInt64);
  }
  if (how.channels_last) inputs_ = train::in_channels_last(inputs_);
  inputs_ = inputs_.to(how.device);
  targets_ = targets_.to(how.device);
}

torch::Tensor TrainingLoop::loss() {
  const amp::AutocastGuard autocast(how_.device.type(), autocast_of(how_));
  const auto scores = model_->forward(inputs_);
  return torch::nn::functional::cross_entropy(scores.flatten(0, -2), targets_.flatten());
}

// Leaves the gradients undefined, as zero_grad() does by default in torch 2, which is fastest.
void TrainingLoop::forget_gradients() {
  for (auto& p : model_->parameters()) p.mutable_grad().reset();
}

void TrainingLoop::step_without_update() {
  forget_gradients();
  loss().backward();
}

void TrainingLoop::step() {
  step_without_update();
  optimizer_->step();
}

void TrainingLoop::step(DistributedDataParallel& replica) {
  auto step = replica.begin_step();
  step.backward(loss());
  step.apply(*optimizer_);
}

std::unique_ptr<DistributedDataParallel> TrainingLoop::shard(comm::Group& group,
                                                             const std::string& what,
                                                             const BucketLimits& buckets) {
  const DataParallelOptions options{.buckets = buckets};
  if (what == "optimizer") {
    optimizer_ = std::make_unique<ShardedOptimizer>(std::move(optimizer_), group);
    return std::make_unique<DistributedDataParallel>(*model_, group, options);
  }
  const auto shard = what == "hybrid"       ? Shard::hybrid
                     : what == "parameters" ? Shard::parameters
                                            : Shard::gradients;
  auto replica = std::make_unique<ShardedDataParallel>(
      *model_, group,
      ShardOptions{
          .shard = shard,
          .units = shard == Shard::gradients ? std::vector<std::string>() : model_->units(),
          .data_parallel = options});
  optimizer_ = std::make_unique<ShardedOptimizer>(std::move(optimizer_), *replica);
  return replica;
}

void TrainingLoop::step_by_bucket(DistributedDataParallel& replica) {
  auto step = replica.begin_step();
  step.backward_and_apply(loss(), *optimizer_);
}

// A copy to the host follows all that was launched before it.
void TrainingLoop::finish() {
  if (how_.device.is_cpu()) return;
  inputs_.flatten()[0].item();
}

void TrainingLoop::step(ReducerPeer& reducer) {
  forget_gradients();
  reducer.before_forward();
  const auto value = loss();
  reducer.before_backward();
  value.backward();
  optimizer_->step();
}

}  // namespace ddp::bench
