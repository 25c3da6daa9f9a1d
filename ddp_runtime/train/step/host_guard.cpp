// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/host_guard.h"

#include <cmath>
#include <utility>

#include "ddp_runtime/train/step/forward_pass.h"
#include "ddp_runtime/train/step/skipped_updates.h"

namespace ddp::train {

HostGuard::HostGuard(const Guarded& guarded) : UpdateGuard(guarded) {
  if (guarded.watch_losses) watch_.emplace(guarded.group);
}

void HostGuard::begin_step() {
  UpdateGuard::begin_step();
  finite_ = true;
}

void HostGuard::add_loss(const torch::Tensor& loss) {
  if (watch_) finite_ = finite_ && std::isfinite(loss.item<double>());
}

torch::Tensor HostGuard::scaled(const torch::Tensor& loss) const {
  return guarded().scaler == nullptr ? loss : guarded().scaler->scale_loss(loss);
}

void HostGuard::ask() {
  if (watch_) watch_->ask(finite_);
}

void HostGuard::await_answers() {
  ranks_ = watch_ ? watch_->answer() : std::vector<int>{};
}

bool HostGuard::unscale(const std::vector<torch::Tensor>& gradients, Have have) const {
  auto* const scaler = guarded().scaler;
  const bool finite = amp::unscale_each(gradients, scaler == nullptr ? 1 : scaler->scale());
  if (have == Have::all) return finite;
  const std::int32_t bad = finite ? 0 : 1;
  return guarded().group.all_reduce_value(bad, comm::ReduceOp::max) == 0;
}

bool HostGuard::decide(const std::vector<torch::Tensor>& gradients, Have have) {
  auto* const scaler = guarded().scaler;
  const float scale = scaler == nullptr ? 1 : scaler->scale();
  bool finite = ranks_.empty();
  if (finite || scaler != nullptr) finite = unscale(gradients, have) && finite;
  if (scaler != nullptr) scaler->update(finite);
  why_.clear();
  if (!ranks_.empty()) {
    why_ = reason_of_losses(ranks_);
  } else if (!finite) {
    why_ = reason_of_gradients(scaler, scale);
  }
  return finite;
}

void HostGuard::put_back_buffers() {
  if (!why_.empty()) train::put_back_buffers(guarded().module, buffers_before());
}

std::optional<UpdateGuard::Result> HostGuard::end_step(std::int64_t step,
                                                       const torch::Tensor& /*facts*/) {
  return Result{step, std::exchange(why_, {})};
}

}  // namespace ddp::train
