// SPDX-License-Identifier: Apache-2.0
// The graph of a training step, and the memory that its replays read: see Note [Graphs] in
// parallel/device/device_graph.h.
//
// Note [Graphs of steps]
// The first steps run eagerly: they create the state of the optimizer, and libraries choose their
// kernels. Then a step is captured, and this and all later ones are replays, except for a batch of
// another shape, whose step runs eagerly. Each kind of step leaves the same bits, because both take
// the learning rate as float32 and update with the same operators. The graph contains the forward
// pass, the loss, backward, the packing of buckets, the check of gradients, clipping and the
// update. The program copies the batch to the device (Note [Staged batches]), reads the loss and
// the flags late, and counts. Between the parts of the graph, it starts the collectives that an
// eager step starts there, in the same order, so a rank whose step runs eagerly meets them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/optim/captured_step.h"
#include "ddp_runtime/parallel/device/device_graph.h"
#include "ddp_runtime/train/step/batch_staging.h"

namespace ddp::train {

class GraphedStep {
 public:
  GraphedStep(torch::Device device, std::unique_ptr<DeviceGraph> graph, std::int64_t warm_up);

  void note_eager_step() noexcept;
  bool warmed_up() const noexcept { return eager_steps_ >= warm_up_; }
  bool captured() const noexcept { return results_.has_value(); }
  // Whether the last step was a replay, so that the number of the next one is known to the device.
  bool counts_on_device() const noexcept { return counts_on_device_; }
  // Whether a batch on the host has the shape and type of the captured one.
  bool fits(const data::Batch& batch) const;
  // Before capture() and before each replay: copies what changes from step to step to where the
  // kernels read it. `steps_made`: of the optimizer. Does not wait for the device if the batch is
  // in pinned memory.
  void load(const data::Batch& batch, double learning_rate, std::int64_t steps_made);

  // What a step leaves for the host. In memory that the next replay overwrites.
  struct Results {
    torch::Tensor loss;
    torch::Tensor facts;  // see UpdateGuard; may be undefined
  };
  using Enqueue =
      std::function<Results(const data::Batch&, const optim::DeviceNumbers&, const CutGraph&)>;
  // Captures what `enqueue` puts on this thread's current stream. Throws what `enqueue` and the
  // device throw; nothing on the device has changed then.
  void capture(const Enqueue& enqueue);
  // Enqueues the step, and runs what comes between its parts.
  const Results& replay();

 private:
  torch::Device device_;
  std::unique_ptr<DeviceGraph> graph_;
  std::int64_t warm_up_;
  std::int64_t eager_steps_ = 0;
  bool counts_on_device_ = false;
  double learning_rate_ = -1;  // the value on the device
  data::Batch batch_;          // on the device
  BatchStaging staging_;
  optim::DeviceNumbers numbers_;
  std::optional<Results> results_;
  std::vector<std::function<void()>> between_;  // after each part but the last one
};

}  // namespace ddp::train
