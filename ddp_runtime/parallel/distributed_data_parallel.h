// SPDX-License-Identifier: Apache-2.0
// Data parallelism for a libtorch module: every rank has a replica and works on its own share of
// the batch, and all apply the same averaged gradients.
//
//   Net net;
//   ddp::DistributedDataParallel replica(*net, world.group());   // all ranks get rank 0's values
//   for (auto& batch : loader) {
//     auto step = replica.begin_step();
//     step.backward(loss(net->forward(batch.x), batch.y));       // returns with averaged gradients
//     step.apply(optimizer);
//   }
//
// Or, to update the parameters of a bucket while the gradients of others are still on their way:
//
//     step.backward_and_apply(loss(net->forward(batch.x), batch.y), optimizer);
//
// The module is used as before: forward() needs no wrapper, because all the work is done by hooks
// on its parameters.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/options.h"
#include "ddp_runtime/parallel/device/device_graph.h"
#include "ddp_runtime/parallel/device/step_marks.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::optim {
class PartialStep;
}

namespace ddp {

class DistributedDataParallel;
class FollowedBuffers;
class GradientExchange;
class IgnoredTensors;
class LossCheck;
class StepAgreement;
class WrappedParameters;

struct BackwardOptions {
  bool retain_graph = false;  // for another backward through the same graph
  double weight = 1;          // factor of this micro-batch's loss in the mean
};

// One optimizer step, made of one or more micro-batches whose gradients are accumulated. Only the
// last one communicates. All calls throw RuntimeError once the replica has begun another step.
class GradientStep {
 public:
  // Runs backward on a scalar loss that is a mean over this rank's micro-batch. After the last
  // micro-batch the gradients are those of the mean over all ranks and micro-batches. They have no
  // graph of their own: for a penalty on gradients, put those of torch::autograd::grad() with
  // create_graph into the loss. Throws UsageError, before anything is sent, if the loss has several
  // elements or no graph.
  void backward(const torch::Tensor& loss, const BackwardOptions& options = {});
  bool complete() const noexcept { return done_ == micro_batches_; }
  // False in an uneven step on a rank that has run out of data: call without_data() instead of
  // backward().
  bool has_data() const noexcept { return has_data_; }
  // Contributes zeros and receives the other ranks' averaged gradients, so that this rank can apply
  // the same update. Throws RuntimeError if the gradients have been averaged already.
  void without_data();
  // Calls optimizer.step(). Throws RuntimeError while micro-batches are missing, because the
  // gradients would differ from rank to rank, and UsageError for LBFGS, which needs a closure.
  void apply(torch::optim::Optimizer& optimizer);

  // Replaces the last backward(), and apply(), with the same results: ddp::optim's optimizers
  // update the parameters of each bucket when its gradients are reduced, while later buckets are
  // still being reduced. Parameters of the optimizer that are not the replica's are updated last.
  // The update comes after all gradients, as in apply(), for any other optimizer, with
  // communication hooks, with sparse gradients, with allow_unused, in the first step of a static
  // graph, with a single rank, and if PartialStep (optim/partial_step.h) refuses. Ranks may mix
  // both ways.
  //
  // Not for steps that need all gradients before the update, to clip them or to undo a loss scale.
  //
  // Throws what backward() and apply() throw; RuntimeError if micro-batches before this one are
  // missing. No parameter of any rank has changed if the error is that a loss is not finite (on a
  // device, that of the previous step), that the ranks are not in the same step or do not have the
  // same parameters, or that this rank lacks a gradient. After any other error, such as the loss of
  // a rank, some parameters may have the update and others not: the model must not be saved or
  // used, and training resumes from a checkpoint.
  void backward_and_apply(const torch::Tensor& loss, torch::optim::Optimizer& optimizer);

  // These replace backward() and apply() in a step of one micro-batch that a graph replays; see
  // capture_backward(). The first one comes after the forward pass, and before the reductions;
  // `loss` is the tensor of the graph that has this step's loss. The second one comes before the
  // update. Throws what backward() throws.
  void begin_replay(const torch::Tensor& loss);
  void finish_replay();

 private:
  void require_possible(const torch::Tensor& loss) const;
  double begin_backward(const torch::Tensor& loss);
  void end_backward();
  void run_backward(const torch::Tensor& loss, const BackwardOptions& options);
  void finish_backward();
  void require_newest() const;

  friend class DistributedDataParallel;
  friend void backward(const torch::Tensor& loss, std::span<GradientStep* const> steps,
                       const BackwardOptions& options);
  GradientStep(DistributedDataParallel& replica, int micro_batches, int ranks, std::int64_t tag,
               bool has_data);

  DistributedDataParallel* replica_;
  int micro_batches_;
  int ranks_;  // number of ranks over which gradients are averaged
  std::int64_t tag_;
  bool has_data_;
  std::int64_t number_;  // as counted by the replica
  int done_ = 0;
  bool retained_ = false;  // by the last backward
};

// One backward for a loss that depends on several replicas, in place of GradientStep::backward() of
// each: that of the first would free the graph that the others need. The steps must have the same
// number of micro-batches and of ranks with data. Each replica should have a channel of the group
// of its own (Group::channel), because their buckets become ready in an order that depends on the
// graph. Throws UsageError for no steps, one step twice, or steps that differ.
void backward(const torch::Tensor& loss, std::span<GradientStep* const> steps,
              const BackwardOptions& options = {});

class DistributedDataParallel {
 public:
  // Collective. Throws RuntimeError, the same on all ranks, if the models differ, and UsageError
  // for a list of tensors to ignore that is wrong. Parameters and buffers take rank 0's values.
  // `module` and `group` must outlive this object.
  DistributedDataParallel(torch::nn::Module& module, comm::Group& group,
                          const DataParallelOptions& options = {});
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
  virtual ~DistributedDataParallel();

  // Collective if the module has buffers to broadcast. `tag` is any number that must be the same on
  // all ranks in this step, such as the position in the data: if it is not, backward() throws.
  // Buffers that were registered since the last step follow rank 0 from here on; if the ranks
  // registered different ones, all ranks throw RuntimeError, here or in backward().
  // Throws RuntimeError naming the parameter if one was added, frozen, unfrozen or converted since
  // this object was created. Throws RuntimeError on several ranks if the last backward() of the
  // previous step ended with an exception before all gradients were averaged: its collectives may
  // still be under way, so the program must let that exception end it.
  GradientStep begin_step(int micro_batches = 1, std::int64_t tag = 0);

  // For data that ends earlier on some ranks than on others:
  //
  //   while (auto step = replica.begin_uneven_step(loader.has_next())) {
  //     if (step->has_data()) {
  //       step->backward(loss_of(loader.next()));
  //     } else {
  //       step->without_data();
  //     }
  //     step->apply(optimizer);
  //   }
  //
  // Collective. Gradients are averaged over the ranks that have data, or over all ranks. Returns
  // nullopt once no rank has data. Since all ranks apply every step, they end with the same model.
  // Throws UsageError, on all ranks, if a rank has no data but the model has SyncBatchNorm layers,
  // which need all ranks in forward().
  enum class DivideBy : std::uint8_t { ranks_with_data, all_ranks };
  std::optional<GradientStep> begin_uneven_step(bool have_data, int micro_batches = 1,
                                                DivideBy divide_by = DivideBy::ranks_with_data);

  // While a graph is captured (Note [Graphs] in device_graph.h): the device's part of backward() in
  // a step of one micro-batch. The parameters must not have gradients; those that they get belong
  // to the graph or to the buckets. `cut` is called for each bucket. Not for steps with a
  // communication hook, with allow_unused or in which the buckets are rebuilt.
  void capture_backward(const torch::Tensor& loss, const CutGraph& cut);

  // The factor by which the losses of the next steps are multiplied, such as GradScaler::scale().
  // It does not change how gradients are averaged; communication hooks that carry part of a
  // gradient over to a later step need it.
  void set_loss_scale(double scale) noexcept;

  // Collective, between two steps. Throws RuntimeError, the same on all ranks, if they no longer
  // have the same parameters; does nothing if options.check_parameters_every is 0. Called when a
  // checkpoint is saved. Throws RuntimeError after an exception as in begin_step().
  void require_same_parameters();

  // On a device, marks where backward, communication and the updates of the next steps end. The
  // caller marks the rest:
  //
  //   ddp::StepMarks marks(device);
  //   recorder.time_on(&marks);
  //   replica.mark_on(&marks);
  //
  // `marks` must live until this is called with null, or as long as this object.
  void mark_on(StepMarks* marks) noexcept;

  // Collective, between two steps. On a device, a loss that is not finite is found in the step
  // after it, so that no step waits for the device; this waits, and throws the same error for the
  // last step. Call it before the model is saved or evaluated. Does nothing on CPUs, and without
  // options.check_loss.
  void require_finite_loss();

  comm::Group& group() noexcept { return group_; }
  torch::nn::Module& module() noexcept { return module_; }
  std::size_t bucket_count() const noexcept;
  // Whether this parameter was ignored when this object was created (options.ignore).
  bool ignores(const torch::Tensor& parameter) const noexcept;

  // The buckets depend on the order in which the first step's gradients became ready, and the exact
  // bits of a sum over more than two ranks depend on the buckets. So a checkpoint must keep this
  // order. See Reducer.
  std::vector<std::int64_t> gradient_order() const;
  void expect_gradient_order(std::span<const std::int64_t> order);

  // The communication of the last complete step (on a device, only what has ended already; none if
  // mark_on() was called), and the times at which its last backward ran and
  // its wait ended.
  struct StepTimes {
    profile::Interval backward;
    profile::Interval exposed;  // from the end of backward until all gradients were reduced
    // The parts of `exposed` in which this rank waited, and the updates by backward_and_apply().
    // Without that function, `waits` is `exposed`, and there are no updates.
    std::vector<profile::Interval> waits;
    std::vector<profile::Interval> updates;
  };
  const std::vector<profile::CommunicationSpan>& communication() const noexcept;
  const StepTimes& times() const noexcept { return times_; }

 protected:
  using MakeExchange =
      std::function<std::unique_ptr<GradientExchange>(const WrappedParameters& parameters)>;
  DistributedDataParallel(torch::nn::Module& module, comm::Group& group,
                          const DataParallelOptions& options, const MakeExchange& make_exchange);
  GradientExchange& gradients() noexcept { return *gradients_; }

 private:
  friend class GradientStep;

  GradientStep begin(int micro_batches, int ranks, std::int64_t tag, bool has_data);
  void follow_buffers(int micro_batches, std::int64_t tag);
  void ask(const GradientStep& step);
  void finish();
  void require_agreement();
  void mark(profile::Phase phase) noexcept;
  void finish_and_apply(torch::optim::Optimizer& optimizer);
  std::unique_ptr<optim::PartialStep> begin_partial_step(torch::optim::Optimizer& optimizer);
  bool compares_parameters() const noexcept;
  void require_whole_step() const;

  torch::nn::Module& module_;
  comm::Group& group_;
  DataParallelOptions options_;
  std::unique_ptr<IgnoredTensors> ignored_;
  std::vector<torch::Tensor> ignored_parameters_;
  std::unique_ptr<FollowedBuffers> buffers_;
  std::unique_ptr<WrappedParameters> parameters_;
  std::unique_ptr<GradientExchange> gradients_;
  std::unique_ptr<LossCheck> losses_;
  std::unique_ptr<StepAgreement> agreement_;
  StepMarks* marks_ = nullptr;
  std::int64_t steps_ = 0;  // steps begun
  bool reducing_ = false;   // collectives of the newest step may be under way
  StepTimes times_;
};

}  // namespace ddp
