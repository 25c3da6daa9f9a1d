// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/synchronous_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>

#include "base/errors.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/train/clip_gradients.h"
#include "ddp_runtime/train/forward_pass.h"
#include "ddp_runtime/train/module_device.h"
#include "ddp_runtime/train/optimizer.h"

namespace ddp::train {
namespace {

using profile::Phase;

DataParallelOptions parallel_options(const TrainOptions& options) {
  auto parallel = options.parallel;
  if (options.on_nan == OnNan::skip) parallel.check_loss = false;  // LossWatch checks it
  return parallel;
}

std::optional<amp::GradScaler> make_scaler(const TrainOptions& options) {
  if (options.loss_scale == 0 && options.precision != amp::Precision::fp16) return std::nullopt;
  amp::GradScalerOptions scaling;
  if (options.loss_scale > 0) scaling.initial_scale = static_cast<float>(options.loss_scale);
  return amp::GradScaler(scaling);
}

// Adds the loss scale to the values that must be equal on all ranks, which include the position.
// See Note [Loss scale].
std::int64_t with_scale(std::int64_t tag, const std::optional<amp::GradScaler>& scaler) {
  if (!scaler) return tag;
  return tag ^ (static_cast<std::int64_t>(std::bit_cast<std::int32_t>(scaler->scale())) << 32);
}

}  // namespace

SynchronousStep::SynchronousStep(comm::Group& group, torch::nn::Module& module,
                                 const Objective& objective, const TrainOptions& options,
                                 profile::StepRecorder& recorder)
    : group_(group),
      module_(module),
      objective_(objective),
      options_(options),
      device_(device_of(module)),
      recorder_(recorder),
      replica_(module, group, parallel_options(options)),
      optimizer_(make_optimizer(module, options.optimizer)),
      scaler_(make_scaler(options)) {
  amp::require_precision(device_.type(), options_.precision);
  if (options_.on_nan == OnNan::skip) watch_.emplace(group_);
}

StepOutcome SynchronousStep::run(data::Prefetcher& batches, double learning_rate,
                                 std::int64_t tag) {
  set_learning_rate(*optimizer_, learning_rate);
  const auto micro_batches = static_cast<int>(options_.micro_batches);
  if (scaler_) replica_.set_loss_scale(scaler_->scale());
  auto step = replica_.begin_step(micro_batches, with_scale(tag, scaler_));
  finite_ = true;
  if (watch_) buffers_before_ = copy_buffers(module_);
  StepOutcome outcome;
  for (int micro = 1; micro <= micro_batches; ++micro) {
    outcome.loss.add(run_micro_batch(step, batches, micro == micro_batches));
  }
  recorder_.add_communication(replica_.communication(), replica_.times().backward);
  const auto span = recorder_.measure(Phase::optimizer);
  finish(step, outcome);
  return outcome;
}

// Parameters are the same on all ranks. BatchNorm statistics are not, because each rank's forward
// has changed its own copy since the step began.
void SynchronousStep::settle() {
  replica_.require_finite_loss();
  broadcast_from_leader(group_, named_buffers(module_));
}

LateValue SynchronousStep::run_micro_batch(GradientStep& step, data::Prefetcher& batches,
                                           bool last) {
  auto loss = forward_loss(batches, objective_, device_, options_.precision, recorder_);
  if (watch_) finite_ = finite_ && std::isfinite(loss.value.value());
  if (watch_ && last) watch_->ask(finite_);
  step.backward(scaler_ ? scaler_->scale_loss(loss.tensor) : loss.tensor);
  recorder_.add(Phase::backward, replica_.times().backward);
  recorder_.add(Phase::exposed_comm, replica_.times().exposed);
  return std::move(loss.value);
}

// Depends only on averaged gradients and on an answer that all ranks received, so each rank gets
// the same result.
std::string SynchronousStep::why_leave_out() {
  const auto ranks = watch_ ? watch_->answer() : std::vector<int>{};
  bool finite = ranks.empty();
  if (scaler_) {
    const float scale = scaler_->scale();
    finite = scaler_->unscale(module_.parameters()) && finite;
    scaler_->update(finite);
    if (!finite && ranks.empty()) {
      return fmt::format("the gradients overflowed with a loss scale of {}, which is now {}", scale,
                         scaler_->scale());
    }
  } else if (watch_ && finite) {
    finite = amp::unscale_gradients(module_.parameters(), 1);
  }
  if (!ranks.empty()) {
    return fmt::format("the loss is not finite on rank{} {}", ranks.size() == 1 ? "" : "s",
                       fmt::join(ranks, ", "));
  }
  return finite ? "" : "a gradient is not finite";
}

void SynchronousStep::finish(GradientStep& step, StepOutcome& outcome) {
  outcome.left_out = why_leave_out();
  if (outcome.left_out.empty()) {
    left_out_in_a_row_ = 0;
    if (options_.clip_norm > 0) {
      clip_gradients(module_.parameters(), options_.clip_norm);
    }
    step.apply(*optimizer_);
    return;
  }
  put_back_buffers(module_, buffers_before_);
  if (++left_out_in_a_row_ < kMaxLeftOut) return;
  throw RuntimeError(fmt::format(
      "the updates of {} steps in a row were skipped, most recently because {}; check the data, "
      "or lower the learning rate",
      left_out_in_a_row_, outcome.left_out));
}

}  // namespace ddp::train
