#include "ddp_runtime/parallel/distributed_data_parallel.h"

#include <fmt/format.h>

#include <cmath>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/parallel/sync_batch_norm.h"

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
                                                 const DataParallelOptions& options)
    : module_(module),
      group_(group),
      options_(options),
      buffers_(named_buffers(module)),
      reducer_(group, agreed_parameters(module, group), options),
      agreement_(group) {}

GradientStep DistributedDataParallel::begin_step(int micro_batches, std::int64_t tag) {
  return begin(micro_batches, group_.size(), tag, true);
}

GradientStep DistributedDataParallel::begin(int micro_batches, int ranks, std::int64_t tag,
                                            bool has_data) {
  if (micro_batches < 1) throw UsageError("a step needs at least one micro-batch");
  if (options_.broadcast_buffers) broadcast_from_leader(group_, buffers_);
  reducer_.begin_step();
  ++steps_;
  return {*this, micro_batches, ranks, tag, has_data};
}

std::optional<GradientStep> DistributedDataParallel::begin_uneven_step(bool have_data,
                                                                       int micro_batches,
                                                                       DivideBy divide_by) {
  const int with_data =
      group_.all_reduce_value<std::int32_t>(have_data ? 1 : 0, comm::ReduceOp::sum);
  if (with_data == 0) return std::nullopt;
  if (with_data < group_.size() && communicates_in_forward(module_)) {
    throw UsageError(fmt::format(
        "{} of {} ranks have no data left, and the model has SyncBatchNorm layers, which need all "
        "ranks in forward(); give every rank the same number of batches (an empty batch will do)",
        group_.size() - with_data, group_.size()));
  }
  return begin(micro_batches, divide_by == DivideBy::all_ranks ? group_.size() : with_data, 0,
               have_data);
}

void GradientStep::backward(const torch::Tensor& loss) {
  if (complete()) {
    throw RuntimeError(fmt::format(
        "backward() called more than the {} time{} this step was begun with; begin a new step",
        micro_batches_, micro_batches_ == 1 ? "" : "s"));
  }
  if (!has_data_) throw RuntimeError("this rank has no data in this step; call without_data()");
  ++done_;
  auto& replica = *replica_;
  if (replica.options_.check_loss) finite_ = finite_ && std::isfinite(loss.item<double>());
  if (complete()) {
    replica.agreement_.ask({replica.steps_, micro_batches_, tag_, finite_});
    replica.reducer_.arm(loss);
  }
  const double share = 1.0 / (static_cast<double>(ranks_) * micro_batches_);
  replica.times_.backward.begin = profile::Clock::now();
  loss.backward(torch::full_like(loss, share));
  replica.times_.backward.end = replica.times_.exposed.begin = profile::Clock::now();
  if (complete()) finish();
  replica.times_.exposed.end = profile::Clock::now();
}

void GradientStep::without_data() {
  auto& replica = *replica_;
  done_ = micro_batches_;
  replica.agreement_.ask({replica.steps_, micro_batches_, tag_, true});
  replica.reducer_.arm_without_data();
  finish();
}

void GradientStep::finish() {
  replica_->reducer_.finish();
  replica_->agreement_.check();
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
