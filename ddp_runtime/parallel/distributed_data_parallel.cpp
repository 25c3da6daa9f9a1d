#include "ddp_runtime/parallel/distributed_data_parallel.h"

#include <fmt/format.h>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/parallel/replica.h"

namespace ddp {
namespace {

std::vector<NamedTensor> agreed_parameters(const torch::nn::Module& module, comm::Group& group) {
  auto parameters = named_parameters(module);
  auto state = parameters;
  for (auto& buffer : named_buffers(module)) state.push_back(std::move(buffer));
  require_same_model(group, state);
  broadcast_from_leader(group, state);
  return parameters;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, comm::Group& group,
                                                 BucketLimits limits)
    : module_(module), group_(group), reducer_(group, agreed_parameters(module, group), limits) {}

GradientStep DistributedDataParallel::begin_step(int micro_batches) {
  if (micro_batches < 1) throw UsageError("a step needs at least one micro-batch");
  reducer_.begin_step();
  return {*this, micro_batches};
}

void GradientStep::backward(const torch::Tensor& loss) {
  if (complete()) {
    throw RuntimeError(fmt::format(
        "backward() called more than the {} time{} this step was begun with; begin a new step",
        micro_batches_, micro_batches_ == 1 ? "" : "s"));
  }
  ++done_;
  if (complete()) replica_->reducer_.arm();
  const double share = 1.0 / (static_cast<double>(replica_->group_.size()) * micro_batches_);
  replica_->times_.backward.begin = profile::Clock::now();
  loss.backward(torch::full_like(loss, share));
  replica_->times_.backward.end = replica_->times_.exposed.begin = profile::Clock::now();
  if (complete()) replica_->reducer_.finish();
  replica_->times_.exposed.end = profile::Clock::now();
}

void GradientStep::apply(torch::optim::Optimizer& optimizer) {
  if (!complete()) {
    throw RuntimeError(
        fmt::format("the step has seen {} of its {} micro-batches, so its gradients are not "
                    "averaged over the ranks yet; call backward() for the others first",
                    done_, micro_batches_));
  }
  optimizer.step();
}

}  // namespace ddp
