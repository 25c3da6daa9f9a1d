// SPDX-License-Identifier: Apache-2.0
// The updates that a run has left out, and why.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/train/step/training_step.h"

namespace ddp::train {

class SkippedUpdates {
 public:
  void note_update() noexcept;
  // Throws RuntimeError after TrainingStep::kMaxLeftOut of them in a row.
  void note(SkippedUpdate skipped);
  // Whether any update was not left out.
  bool has_updated() const noexcept { return has_updated_; }
  // Those since the last call.
  std::vector<SkippedUpdate> take();

 private:
  std::vector<SkippedUpdate> skipped_;
  int in_a_row_ = 0;
  bool has_updated_ = false;
};

// Why an update is left out. `ranks`, of the job: those whose loss is not finite.
std::string reason_of_losses(std::span<const int> ranks);
// `scaler`: null without loss scaling; already changed from `scale_before`.
std::string reason_of_gradients(const amp::GradScaler* scaler, float scale_before);

}  // namespace ddp::train
