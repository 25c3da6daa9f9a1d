// Averages gradients over the ranks while backward is still producing them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/parallel/bucket_plan.h"
#include "ddp_runtime/parallel/bucket_store.h"
#include "ddp_runtime/parallel/launch_order.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

// Note [Where the gradients live]
// Before backward the gradients are undefined, so autograd hands over each freshly computed one
// without adding it to anything. The hook that follows copies it into its bucket and makes the
// bucket's window the parameter's gradient: one pass over the data, after which the gradient that
// the optimiser reads is the reduced one, and the fresh tensor is freed. Letting autograd add into
// a zeroed window instead would read and write the data three times. Later micro-batches of the
// same step find the window defined and add into it in place.
//
// Note [Averaging]
// The sum over ranks and micro-batches becomes an average because backward starts from
// 1 / (ranks x micro-batches) instead of 1. That costs nothing, it keeps half-precision sums in
// range, and it makes N ranks and N accumulated micro-batches compute the same numbers.
class Reducer {
 public:
  // Only parameters that require gradients take part.
  Reducer(comm::Group& group, std::vector<NamedTensor> parameters, const BucketLimits& limits);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  ~Reducer();

  // Forgets the gradients of the step before.
  void begin_step();
  // During the next backward, buckets are sent as soon as they are complete.
  void arm();
  // After that backward: waits until all gradients are reduced. Throws RuntimeError naming
  // parameters that got no gradient.
  void finish();

  // The collectives of the last finished step.
  const std::vector<profile::CommunicationSpan>& communication() const noexcept { return spans_; }
  std::size_t bucket_count() const noexcept { return store_ ? store_->size() : 0; }

 private:
  void add_hook(std::size_t index);
  void on_gradient(std::size_t index);
  void launch(std::size_t bucket);
  void require_all_ready() const;
  std::string label(std::size_t bucket) const;

  comm::Group& group_;
  std::vector<NamedTensor> parameters_;
  BucketPlan plan_;
  LaunchOrder order_;
  std::unique_ptr<BucketStore> store_;  // none in a world of one: nothing is sent

  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;  // the tensor holds it weakly
    std::uintptr_t key = 0;
  };
  std::vector<Hook> hooks_;

  std::mutex mutex_;  // hooks may run on a device's backward thread
  bool armed_ = false;
  std::vector<comm::Work> works_;
  std::vector<profile::CommunicationSpan> spans_;
};

}  // namespace ddp
