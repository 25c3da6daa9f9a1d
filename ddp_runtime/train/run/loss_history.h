// SPDX-License-Identifier: Apache-2.0
// The losses of a run's steps. They stay on each rank and are averaged over the ranks only when
// needed: a collective in every step would cost more than a number in a log is worth.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/report/run_outcome.h"
#include "ddp_runtime/train/step/mean_loss.h"

namespace ddp::train {

class LossHistory {
 public:
  // Adds a step. `loss` is this rank's; on a device it is read when the next step is added, see
  // Note [Late values]. `step.loss` and `step.seconds` are ignored.
  void add(const StepLoss& step, MeanLoss loss);
  // The duration of the newest step.
  void set_seconds(double seconds) { steps_.back().seconds = seconds; }

  // Collective. Averages over the ranks the losses of the steps since the last call, and returns
  // the means. Waits for the device if the newest loss is on one. `with_losses`: how many ranks
  // have losses; the others have added empty ones.
  std::vector<double> average(comm::Group& group, int with_losses);
  std::vector<double> average(comm::Group& group) { return average(group, group.size()); }

  // The newest known loss: this rank's, or the mean if it has been averaged. 0 before the first.
  double newest_loss() const noexcept { return newest_loss_; }
  // The same; nullopt before the first.
  std::optional<double> known_loss() const noexcept {
    return known_ ? std::optional(newest_loss_) : std::nullopt;
  }
  // The newest step, after the first add(), even if it was taken.
  const StepLoss& newest() const { return steps_.empty() ? last_taken_ : steps_.back(); }

  // Moves the averaged steps out.
  std::vector<StepLoss> take_averaged();

 private:
  void read_late_loss();

  std::vector<StepLoss> steps_;
  StepLoss last_taken_;
  std::size_t averaged_ = 0;      // how many of steps_, from the first
  std::optional<MeanLoss> late_;  // of the newest step, until it is known
  double newest_loss_ = 0;
  bool known_ = false;  // newest_loss_
};

}  // namespace ddp::train
