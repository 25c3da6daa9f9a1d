// SPDX-License-Identifier: Apache-2.0
// How the ranks average gradients: what DistributedDataParallel needs of it in a step, whether each
// rank gets all gradients or only its part of them.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/device/device_graph.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

class StepMarks;

// Gradients that can be used bucket by bucket.
class BucketwiseExchange {
 public:
  virtual ~BucketwiseExchange() = default;

  // Before finish(), the gradients of one bucket can be used while later ones are on their way:
  // begin_buckets() throws what finish() would, then each call of next_bucket() waits for a bucket
  // and returns its parameters, nothing after the last one.
  //
  // begin_buckets() returns false if only finish() tells which gradients there are. Otherwise all
  // gradients are defined when it returns, but those of a bucket have their values only after the
  // call of next_bucket().
  virtual bool begin_buckets() = 0;
  virtual std::vector<torch::Tensor> next_bucket() = 0;

  // See DistributedDataParallel.
  virtual void set_loss_scale(double scale) noexcept = 0;
  virtual std::vector<std::int64_t> gradient_order() const = 0;
  virtual void expect_gradient_order(std::span<const std::int64_t> order) = 0;
};

// Steps that can be captured as a graph.
class CapturableExchange {
 public:
  virtual ~CapturableExchange() = default;

  // While a graph is captured, instead of the functions around backward: each bucket that is
  // complete in the backward of `loss` ends a part, after which its reduction starts. end_capture()
  // makes the memory of the buckets the gradients. Throws like finish(), and UsageError if the
  // options do not allow graphs.
  virtual void begin_capture(const torch::Tensor& loss, const CutGraph& cut) = 0;
  virtual void end_capture() = 0;
  // After these two, or after an error between them.
  virtual void leave_capture() noexcept = 0;
  // Around a replay, in which no hook runs.
  virtual void begin_replay() = 0;
  virtual void finish_replay() = 0;
};

// Ranks that also gather parameters in forward, so that each pass is collective, not only the last
// backward of a step.
class GatheringExchange {
 public:
  // What there was before a backward.
  enum class Forward : std::uint8_t {
    made,
    perhaps_made,  // the previous backward of the step has retained its graph
    without_data,
  };

  virtual ~GatheringExchange() = default;

  // Collective. Throws if parameters were changed otherwise than by an update, as far as this
  // object can tell. `when` is as in require_same_parameters().
  virtual void require_unchanged(const std::string& when) = 0;
  // After each forward of a step, or instead of one on a rank that has no data. Then all ranks have
  // gathered the same units in this step; these are their numbers, and their names, one per line.
  virtual void end_forward(Forward forward) = 0;
  virtual const std::vector<std::size_t>& gathers() const = 0;
  virtual std::string gathered() const = 0;
};

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Discards the gradients of the previous step, and prepares forward. The step will have this many
  // backwards, on all ranks.
  virtual void begin_step(int micro_batches) = 0;
  // Throws UsageError for an optimizer that cannot update what this exchange averages.
  virtual void require_optimizer(torch::optim::Optimizer& optimizer) const = 0;
  // Around each backward of a step, that of `loss`. After the last one, finish() returns when all
  // gradients are averaged. It throws RuntimeError naming parameters without a gradient, unless
  // that is allowed; with a single rank it may only warn.
  virtual void begin_backward(const torch::Tensor& loss, bool last) = 0;
  virtual void end_backward(bool last) = 0;
  // Replaces a backward on a rank that has no data: contributes zeros.
  virtual void pass_without_data(bool last) = 0;
  virtual void finish() = 0;

  // What not every exchange does; null if this one does not.
  virtual BucketwiseExchange* bucketwise() noexcept { return nullptr; }
  virtual GatheringExchange* gathering() noexcept { return nullptr; }
  // Throws UsageError if its steps cannot be captured.
  virtual CapturableExchange& capturable() = 0;

  // Gives the collectives of the next steps to `marks` instead of communication(), except those of
  // a communication hook. `marks` may be null, and must live until this is called again.
  virtual void mark_on(StepMarks* marks) noexcept = 0;
  // The collectives of the last finished step; those of a device, as far as they have ended.
  virtual const std::vector<profile::CommunicationSpan>& communication() const noexcept = 0;
  virtual std::size_t bucket_count() const noexcept = 0;
};

}  // namespace ddp
