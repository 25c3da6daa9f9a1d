// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/device_guard.h"

#include <memory>
#include <utility>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/train/step/skipped_updates.h"

namespace ddp::train {
namespace {

// The facts that the host learns about a step, all as float32: these, then one for each rank if
// losses are watched. A scale is exact, and so is a count below 2^24.
enum Fact : std::int64_t { kSkip, kScaleAfter, kUpdatesSinceChange, kRanks };

torch::Tensor is_not_finite(const torch::Tensor& loss) {
  return loss.detach().reshape({}).isfinite().logical_not().to(torch::kFloat32);
}

}  // namespace

DeviceGuard::DeviceGuard(const Guarded& guarded, torch::Device device)
    : UpdateGuard(guarded),
      floats_(torch::TensorOptions(torch::kFloat32).device(device)),
      optimizer_(*optim::abilities_of(guarded.optimizer).skips) {
  if (guarded.scaler != nullptr) device_scaler_.emplace(*guarded.scaler, device);
  if (guarded.watch_losses) bad_ranks_ = torch::zeros({guarded.group.size()}, floats_);
}

void DeviceGuard::begin_step() {
  UpdateGuard::begin_step();
  if (guarded().watch_losses) bad_loss_ = torch::zeros({}, floats_);
}

void DeviceGuard::add_loss(const torch::Tensor& loss) {
  if (guarded().watch_losses) bad_loss_.copy_(torch::maximum(bad_loss_, is_not_finite(loss)));
}

torch::Tensor DeviceGuard::scaled(const torch::Tensor& loss) const {
  return device_scaler_ ? device_scaler_->scale_loss(loss) : loss;
}

void DeviceGuard::end_losses() {
  if (!guarded().watch_losses) return;
  bad_ranks_.zero_();
  bad_ranks_.select(0, guarded().group.rank()).copy_(bad_loss_);
}

void DeviceGuard::ask() {
  if (!guarded().watch_losses || guarded().group.size() == 1) return;
  asked_ = guarded().group.all_reduce(ddp::buffer_of(bad_ranks_), comm::ReduceOp::max,
                                      "losses that are not finite",
                                      std::make_shared<torch::Tensor>(bad_ranks_));
}

void DeviceGuard::await_answers() {
  if (guarded().watch_losses && guarded().group.size() > 1) asked_.wait();
}

bool DeviceGuard::decide(const std::vector<torch::Tensor>& gradients, Have have) {
  const torch::NoGradGuard no_grad;
  skip_ = guarded().watch_losses ? bad_ranks_.max() : torch::zeros({}, floats_);
  if (device_scaler_) {
    device_scaler_->unscale_each(gradients, skip_);
  } else {
    amp::check_and_multiply_each(gradients, torch::ones({}, floats_), skip_);
  }
  if (have == Have::parts && guarded().group.size() > 1) {
    guarded()
        .group
        .all_reduce(ddp::buffer_of(skip_), comm::ReduceOp::max, "gradients that are not finite",
                    std::make_shared<torch::Tensor>(skip_))
        .wait();
  }
  if (device_scaler_) device_scaler_->update(skip_);
  optimizer_.skip_next_step_if(skip_);
  return true;
}

void DeviceGuard::put_back_buffers() {
  const torch::NoGradGuard no_grad;
  const auto skip = skip_.to(torch::kBool);
  const auto buffers = guarded().module.buffers();
  for (std::size_t i = 0; i < buffers_before().size(); ++i) {
    buffers[i].copy_(torch::where(skip, buffers_before()[i], buffers[i]));
  }
}

torch::Tensor DeviceGuard::facts() const {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> facts{skip_};
  if (device_scaler_) {
    facts.push_back(device_scaler_->scale());
    facts.push_back(device_scaler_->updates_since_change().to(torch::kFloat32));
  } else {
    facts.insert(facts.end(), 2, torch::zeros({}, floats_));
  }
  const auto all = torch::stack(facts);
  return guarded().watch_losses ? torch::cat({all, bad_ranks_}) : all;
}

std::optional<DeviceGuard::Result> DeviceGuard::end_step(std::int64_t step,
                                                         const torch::Tensor& facts) {
  auto previous = std::exchange(newest_, Step{step, LateTensor(facts)});
  if (!previous) return std::nullopt;
  return result_of(*previous);
}

std::optional<DeviceGuard::Result> DeviceGuard::settle() {
  const auto last = std::exchange(newest_, std::nullopt);
  if (!last) return std::nullopt;
  return result_of(*last);
}

DeviceGuard::Result DeviceGuard::result_of(const Step& step) {
  const auto& tensor = step.facts.value();
  const auto* const facts = tensor.data_ptr<float>();
  optimizer_.settle_step(facts[kSkip] != 0);
  const float scale_before = guarded().scaler == nullptr ? 0 : guarded().scaler->scale();
  if (guarded().scaler != nullptr) {
    guarded().scaler->restore(
        {facts[kScaleAfter], static_cast<std::int64_t>(facts[kUpdatesSinceChange])});
  }
  return {step.number, facts[kSkip] == 0 ? "" : reason(facts, scale_before)};
}

std::string DeviceGuard::reason(const float* facts, float scale_before) const {
  std::vector<int> ranks;
  for (int rank = 0; guarded().watch_losses && rank < guarded().group.size(); ++rank) {
    if (facts[kRanks + rank] != 0) ranks.push_back(guarded().group.world_rank(rank));
  }
  return ranks.empty() ? reason_of_gradients(guarded().scaler, scale_before)
                       : reason_of_losses(ranks);
}

}  // namespace ddp::train
