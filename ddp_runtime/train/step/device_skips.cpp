// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/device_skips.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "ddp_runtime/comm/group/group_name.h"
#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp::train {
namespace {

// The facts that the host learns about a step, all as float32: these, then one for each rank if
// losses are watched. A scale is exact, and so is a count below 2^24.
enum Fact : std::int64_t { kSkip, kScaleAfter, kUpdatesSinceChange, kRanks };

torch::Tensor is_not_finite(const torch::Tensor& loss) {
  return loss.detach().reshape({}).isfinite().logical_not().to(torch::kFloat32);
}

}  // namespace

DeviceSkips::DeviceSkips(comm::Group& group, torch::Device device,
                         torch::optim::Optimizer& optimizer, amp::GradScaler* scaler,
                         bool watch_losses)
    : group_(group),
      floats_(torch::TensorOptions(torch::kFloat32).device(device)),
      optimizer_(*optim::abilities_of(optimizer).skips),
      scaler_(scaler),
      watch_losses_(watch_losses) {
  if (scaler != nullptr) device_scaler_.emplace(*scaler, device);
  if (watch_losses) bad_ranks_ = torch::zeros({group.size()}, floats_);
}

void DeviceSkips::begin_step() {
  if (watch_losses_) bad_loss_ = torch::zeros({}, floats_);
}

void DeviceSkips::add_loss(const torch::Tensor& loss) {
  if (watch_losses_) bad_loss_.copy_(torch::maximum(bad_loss_, is_not_finite(loss)));
}

torch::Tensor DeviceSkips::scaled(const torch::Tensor& loss) const {
  return device_scaler_ ? device_scaler_->scale_loss(loss) : loss;
}

void DeviceSkips::end_losses() {
  if (!watch_losses_) return;
  bad_ranks_.zero_();
  bad_ranks_.select(0, group_.rank()).copy_(bad_loss_);
}

void DeviceSkips::ask() {
  if (!watch_losses_ || group_.size() == 1) return;
  asked_ =
      group_.all_reduce(ddp::buffer_of(bad_ranks_), comm::ReduceOp::max,
                        "losses that are not finite", std::make_shared<torch::Tensor>(bad_ranks_));
}

void DeviceSkips::await_answers() {
  if (watch_losses_ && group_.size() > 1) asked_.wait();
}

void DeviceSkips::decide(const std::vector<torch::Tensor>& gradients, Have have) {
  const torch::NoGradGuard no_grad;
  skip_ = watch_losses_ ? bad_ranks_.max() : torch::zeros({}, floats_);
  if (device_scaler_) {
    device_scaler_->unscale_each(gradients, skip_);
  } else {
    amp::check_and_multiply_each(gradients, torch::ones({}, floats_), skip_);
  }
  if (have == Have::parts && group_.size() > 1) {
    group_
        .all_reduce(ddp::buffer_of(skip_), comm::ReduceOp::max, "gradients that are not finite",
                    std::make_shared<torch::Tensor>(skip_))
        .wait();
  }
  if (device_scaler_) device_scaler_->update(skip_);
  optimizer_.skip_next_step_if(skip_);
}

void DeviceSkips::put_back(const std::vector<torch::Tensor>& buffers,
                           const std::vector<torch::Tensor>& before) const {
  const torch::NoGradGuard no_grad;
  const auto skip = skip_.to(torch::kBool);
  for (std::size_t i = 0; i < before.size(); ++i) {
    buffers[i].copy_(torch::where(skip, before[i], buffers[i]));
  }
}

torch::Tensor DeviceSkips::facts() const {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> facts{skip_};
  if (device_scaler_) {
    facts.push_back(device_scaler_->scale());
    facts.push_back(device_scaler_->updates_since_change().to(torch::kFloat32));
  } else {
    facts.insert(facts.end(), 2, torch::zeros({}, floats_));
  }
  const auto all = torch::stack(facts);
  return watch_losses_ ? torch::cat({all, bad_ranks_}) : all;
}

std::optional<DeviceSkips::Result> DeviceSkips::end_step(std::int64_t step,
                                                         const torch::Tensor& facts) {
  auto previous = std::exchange(newest_, Step{step, LateTensor(facts)});
  if (!previous) return std::nullopt;
  return result_of(*previous);
}

std::optional<DeviceSkips::Result> DeviceSkips::settle() {
  const auto last = std::exchange(newest_, std::nullopt);
  if (!last) return std::nullopt;
  return result_of(*last);
}

DeviceSkips::Result DeviceSkips::result_of(const Step& step) {
  const auto& tensor = step.facts.value();
  const auto* const facts = tensor.data_ptr<float>();
  optimizer_.settle_step(facts[kSkip] != 0);
  const float scale_before = scaler_ == nullptr ? 0 : scaler_->scale();
  if (scaler_ != nullptr) {
    scaler_->restore({facts[kScaleAfter], static_cast<std::int64_t>(facts[kUpdatesSinceChange])});
  }
  return {step.number, facts[kSkip] == 0 ? "" : reason(facts, scale_before)};
}

std::string DeviceSkips::reason(const float* facts, float scale_before) const {
  std::vector<int> ranks;
  for (int rank = 0; watch_losses_ && rank < group_.size(); ++rank) {
    if (facts[kRanks + rank] != 0) ranks.push_back(group_.world_rank(rank));
  }
  if (!ranks.empty()) {
    return fmt::format("the loss is not finite on {}", comm::describe_ranks(ranks));
  }
  if (scaler_ == nullptr) return "a gradient is not finite";
  return fmt::format("the gradients overflowed with a loss scale of {}, which is now {}",
                     scale_before, scaler_->scale());
}

}  // namespace ddp::train
