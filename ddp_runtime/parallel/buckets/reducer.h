// SPDX-License-Identifier: Apache-2.0
// Averages gradients over the ranks while backward is still producing them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/buckets/bucket_store.h"
#include "ddp_runtime/parallel/buckets/gradient_exchange.h"
#include "ddp_runtime/parallel/buckets/graph_knowledge.h"
#include "ddp_runtime/parallel/buckets/launch_order.h"
#include "ddp_runtime/parallel/buckets/options.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/sparse_gradients.h"
#include "ddp_runtime/parallel/device/device_graph.h"
#include "ddp_runtime/parallel/device/step_marks.h"
#include "ddp_runtime/parallel/hooks/hook_runner.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {

// Note [Where the gradients live]
// Before backward, the gradients are undefined, so autograd hands over each freshly computed one
// without adding it to anything. The hook that follows copies it into its bucket and makes the
// bucket's window the parameter's gradient: one pass over the data, after which the gradient that
// the optimizer reads is the reduced one, and the fresh tensor is freed. Letting autograd add into
// a zeroed window instead would read and write the data three times. Later micro-batches of the
// same step find the window defined and accumulate into it in place.
//
// Note [Averaging]
// The sum over ranks and micro-batches becomes an average because backward starts from 1 / (ranks x
// micro-batches) instead of 1. That costs nothing, it keeps half-precision sums in range, and it
// makes N ranks and N accumulated micro-batches compute the same numbers.
//
// Note [Gradients on a device]
// A copy per parameter would be a kernel per parameter. So a fresh gradient stays where autograd
// put it, accumulates there, and one kernel copies all gradients of a bucket when the last one is
// ready. Nothing waits on the host: the reduction follows that kernel on the same stream, and the
// stream waits for the reduction.
// A gradient accumulator runs on the stream that was current when it was made, which is when the
// Reducer is constructed. On another stream, the bucket would be packed before its gradients are
// there.
//
// Note [Unused parameters]
// A loss on this rank may leave a parameter unused. Its window then counts as ready without a
// hook: before backward if the graph does not reach it, at the end of backward otherwise (a
// function may return no gradient). The window holds the sum of earlier micro-batches of the step,
// or zeros. A map of the parameters used by each rank, reduced after the last bucket, shows which
// gradients no rank touched; those stay undefined, so that an optimizer with momentum or weight
// decay leaves their parameters alone, as it would in one process.
class Reducer final : public GradientExchange,
                      public BucketwiseExchange,
                      public CapturableExchange {
 public:
  // Only parameters that require gradients take part. If they are on a device, its stream that is
  // current for this thread must be current in every step. `sparse` has the parameters whose
  // gradients are sparse.
  Reducer(comm::Group& group, std::vector<NamedTensor> parameters, std::vector<NamedTensor> sparse,
          const DataParallelOptions& options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  ~Reducer() override;

  // Collective only once: when the buckets are rebuilt, in the step after the first reduction.
  void begin_step(int /*micro_batches*/) override;
  void require_optimizer(torch::optim::Optimizer& optimizer) const override {
    require_masters(optimizer, options_.reduce_type);
  }
  BucketwiseExchange* bucketwise() noexcept override { return this; }
  CapturableExchange& capturable() override { return *this; }
  // During the last backward of a step, buckets are sent as soon as they are complete.
  void begin_backward(const torch::Tensor& loss, bool last) override;
  void end_backward(bool /*last*/) override {}
  void pass_without_data(bool last) override;
  void finish() override;
  // Returns false with communication hooks, sparse gradients, a step that determines the unused
  // parameters, and a single rank.
  bool begin_buckets() override;
  std::vector<torch::Tensor> next_bucket() override;

  void begin_capture(const torch::Tensor& loss, const CutGraph& cut) override;
  void end_capture() override;
  void leave_capture() noexcept override;
  void begin_replay() override;
  void finish_replay() override;

  // See GradientBucket::loss_scale().
  void set_loss_scale(double scale) noexcept override { loss_scale_ = scale; }
  void mark_on(StepMarks* marks) noexcept override { marks_ = marks; }

  // The order in which backward finishes the gradients, as indices of the parameters that require
  // them; empty while it is unknown, or if there is no single order. The same on all ranks.
  std::vector<std::int64_t> gradient_order() const override;
  // Adopts an order that was learned earlier, so that the next step has the same buckets as then.
  // Call on all ranks, before the first step. Does nothing if it does not fit the model.
  void expect_gradient_order(std::span<const std::int64_t> order) override;

  const std::vector<profile::CommunicationSpan>& communication() const noexcept override {
    return spans_;
  }
  std::size_t bucket_count() const noexcept override { return store_ ? store_->size() : 0; }
  const BucketPlan& plan() const noexcept { return plan_; }

 private:
  std::unique_ptr<BucketStore> make_store();
  void add_hook(std::size_t index);
  void on_gradient(std::size_t index);
  void take_gradient(std::size_t index);
  bool is_last_gradient(std::size_t index);
  void mark_ready(std::size_t index);
  void pack(std::size_t bucket);
  void settle_without_gradient(std::size_t index);
  void settle_missing();
  void launch(std::size_t bucket);
  void send(std::size_t bucket);
  GradientBucket bucket_for_hook(std::size_t bucket) const;
  void wait_for_bucket();
  void wait_for_buckets();
  void begin_pass();
  void settle_unreachable(const torch::Tensor& loss);
  void require_stream() const;
  void rebuild();
  void launch_use_map();
  void publish_gradients();
  void require_gradients() const;
  std::vector<std::string> missing_names() const;
  std::string describe(const std::vector<std::string>& missing) const;
  void warn_of_missing();
  std::string label(std::size_t bucket) const;

  comm::Group& group_;
  DataParallelOptions options_;
  std::vector<NamedTensor> parameters_;
  SparseGradients sparse_;
  BucketPlan plan_;
  LaunchOrder order_;
  std::unique_ptr<BucketStore> store_;  // null with a single rank: nothing is sent

  std::optional<torch::Device> device_;  // nullopt: the CPU
  void* stream_ = nullptr;               // of the device, in every step

  struct Hook {
    torch_compat::NodePointer accumulator;  // the tensor holds it weakly
    std::uintptr_t key = 0;
  };
  std::vector<Hook> hooks_;

  GraphKnowledge graph_;

  std::mutex mutex_;  // hooks may run on a device's backward thread
  bool armed_ = false;
  bool has_data_ = true;            // in this pass
  std::vector<std::uint8_t> used_;  // in this step, by this rank; after finish(), by any rank
  std::shared_ptr<std::vector<std::uint8_t>> use_map_;
  comm::Work use_map_work_;
  std::vector<comm::Work> works_;
  std::size_t waited_ = 0;          // buckets that have been waited for in this pass
  std::optional<HookRunner> hook_;  // instead of works_
  StepMarks* marks_ = nullptr;
  CutGraph cut_;  // only in a capture
  double loss_scale_ = 1;
  std::int64_t passes_ = 0;  // completed passes that reduced
  std::vector<profile::CommunicationSpan> spans_;
  bool warned_of_missing_ = false;
};

}  // namespace ddp
