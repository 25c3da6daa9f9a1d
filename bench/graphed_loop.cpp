// SPDX-License-Identifier: Apache-2.0
#include "bench/graphed_loop.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <limits>
#include <string>
#include <utility>

#include "ddp_runtime/parallel/device/cuda_graph.h"

namespace ddp::bench {
namespace {

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
constexpr int kWorkers = 1;
constexpr int kPrefetched = 2;  // as in the trainer

// The default stream of a device cannot be captured.
c10::Stream new_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

train::TrainOptions options_of(const TrainingLoop& loop, const std::string& optimizer,
                               const BucketLimits& buckets) {
  train::TrainOptions options;
  options.optimizer.name = optimizer;
  options.optimizer.learning_rate = learning_rate_of(optimizer);
  if (optimizer == "adamw") options.optimizer.weight_decay = 0.01;  // libtorch's default
  if (loop.computation().bf16) options.precision = amp::Precision::bf16;
  options.parallel.buckets = buckets;
  options.graph.mode = train::GraphMode::on;
  return options;
}

}  // namespace

GraphedLoop::GraphedLoop(comm::Group& group, TrainingLoop& loop, const std::string& optimizer,
                         const BucketLimits& buckets)
    : batch_(data::for_each_tensor(
          loop.batch(), [](const torch::Tensor& tensor) { return tensor.cpu().pin_memory(); })),
      stream_(new_stream(loop.computation().device)),
      objective_{.forward = [&loop](const torch::Tensor& x) { return loop.model().forward(x); }} {
  loop.finish();  // what the default stream has for the model
  on_stream([&] {
    step_ = train::make_training_step({group, loop.model(), objective_, recorder_},
                                      options_of(loop, optimizer, buckets),
                                      {.graph = make_cuda_graph(loop.computation().device)});
  });
  batches_.emplace(
      kEndless, [this](std::int64_t) { return batch_; }, kWorkers, kPrefetched);
  on_stream([&] {
    while (step_->replays() == 0) step();  // the first steps run eagerly
  });
}

void GraphedLoop::on_stream(const std::function<void()>& run) {
  const c10::StreamGuard guard(stream_);
  run();
}

void GraphedLoop::step() {
  recorder_.begin_step();
  step_->run(*batches_, step_->optimizer().param_groups().front().options().get_lr(), ++steps_);
  recorder_.end_step();
}

}  // namespace ddp::bench
