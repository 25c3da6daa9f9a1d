// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/graphed_step.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp::train {
namespace {

bool alike(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

}  // namespace

GraphedStep::GraphedStep(torch::Device device, std::unique_ptr<DeviceGraph> graph,
                         std::int64_t warm_up)
    : device_(device), graph_(std::move(graph)), warm_up_(warm_up), staging_(device) {
  const auto floats = torch::TensorOptions(torch::kFloat32).device(device);
  numbers_ = {torch::zeros({}, floats), torch::zeros({}, floats)};
}

void GraphedStep::note_eager_step() noexcept {
  ++eager_steps_;
  counts_on_device_ = false;
}

bool GraphedStep::fits(const data::Batch& batch) const {
  return alike(batch.inputs, batch_.inputs) && alike(batch.targets, batch_.targets) &&
         std::equal(batch.more.begin(), batch.more.end(), batch_.more.begin(), batch_.more.end(),
                    alike);
}

void GraphedStep::load(const data::Batch& batch, double learning_rate, std::int64_t steps_made) {
  const torch::NoGradGuard no_grad;
  if (!batch_.inputs.defined()) {
    batch_ = data::for_each_tensor(batch, [&](const torch::Tensor& tensor) {
      return torch::empty_like(tensor, torch::TensorOptions(device_).pinned_memory(false));
    });
  }
  staging_.copy(batch, batch_);
  if (std::exchange(learning_rate_, learning_rate) != learning_rate) {
    numbers_.learning_rate.fill_(learning_rate);
  }
  if (!std::exchange(counts_on_device_, true)) numbers_.steps.fill_(steps_made);
}

void GraphedStep::capture(const Enqueue& enqueue) {
  graph_->begin_capture();
  std::optional<Results> results;
  try {
    results = enqueue(batch_, numbers_, [this](std::function<void()> between) {
      graph_->cut();
      between_.push_back(std::move(between));
    });
  } catch (...) {
    try {
      graph_->end_capture();
    } catch (const c10::Error&) {  // of the same reason
    }
    throw;
  }
  graph_->end_capture();
  results_ = std::move(results);
}

const GraphedStep::Results& GraphedStep::replay() {
  for (std::size_t part = 0; part <= between_.size(); ++part) {
    graph_->replay(part);
    if (part < between_.size()) between_[part]();
  }
  return *results_;
}

}  // namespace ddp::train
