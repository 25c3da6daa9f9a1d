// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/loss_history.h"

#include <span>
#include <utility>

namespace ddp::train {

void LossHistory::add(const StepLoss& step, MeanLoss loss) {
  read_late_loss();
  steps_.push_back(step);
  late_ = std::move(loss);
  if (late_->ready()) read_late_loss();
}

void LossHistory::read_late_loss() {
  if (!late_) return;
  if (late_->empty()) return late_.reset();
  steps_.back().loss = newest_loss_ = std::exchange(late_, std::nullopt)->value();
  known_ = true;
}

std::vector<double> LossHistory::average(comm::Group& group, int with_losses) {
  read_late_loss();
  std::vector<double> means;
  for (std::size_t i = averaged_; i < steps_.size(); ++i) means.push_back(steps_[i].loss);
  if (means.empty()) return means;
  group.all_reduce(comm::buffer_of(std::span(means)), comm::ReduceOp::sum, "losses").wait();
  for (double& mean : means) {
    mean /= with_losses;
    steps_[averaged_++].loss = mean;
  }
  newest_loss_ = means.back();
  return means;
}

std::vector<StepLoss> LossHistory::take_averaged() {
  const auto end = steps_.begin() + static_cast<std::ptrdiff_t>(std::exchange(averaged_, 0));
  std::vector<StepLoss> taken(steps_.begin(), end);
  steps_.erase(steps_.begin(), end);
  if (!taken.empty()) last_taken_ = taken.back();
  return taken;
}

}  // namespace ddp::train
