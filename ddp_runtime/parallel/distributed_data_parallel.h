// Data parallelism for a libtorch module: every rank has a replica, works on its own part of the
// batch, and all apply the same averaged gradients.
//
//   Net net;
//   ddp::DistributedDataParallel replica(*net, world.group());   // same model, same values,
//   everywhere for (auto& batch : loader) {
//     auto step = replica.begin_step();
//     step.backward(loss(net->forward(batch.x), batch.y));       // returns with averaged gradients
//     step.apply(optimizer);
//   }
//
// The module is used as before: forward() needs no wrapper, because all the work is done by hooks
// on its parameters.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/parallel/bucket_plan.h"
#include "ddp_runtime/parallel/reducer.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

class DistributedDataParallel;

// One optimiser step, made of one or more micro-batches whose gradients are added up. Only the last
// one communicates.
class GradientStep {
 public:
  // Runs backward on a scalar loss that is a mean over this rank's micro-batch. After the last
  // micro-batch the gradients are those of the mean over all ranks and micro-batches.
  void backward(const torch::Tensor& loss);
  bool complete() const noexcept { return done_ == micro_batches_; }
  // optimizer.step(); throws RuntimeError while micro-batches are missing, because the gradients
  // would differ from rank to rank.
  void apply(torch::optim::Optimizer& optimizer);

 private:
  friend class DistributedDataParallel;
  GradientStep(DistributedDataParallel& replica, int micro_batches)
      : replica_(&replica), micro_batches_(micro_batches) {}

  DistributedDataParallel* replica_;
  int micro_batches_;
  int done_ = 0;
};

class DistributedDataParallel {
 public:
  // Collective. Throws RuntimeError, the same on all ranks, if the models differ. Parameters and
  // buffers take rank 0's values. `module` and `group` must outlive this.
  DistributedDataParallel(torch::nn::Module& module, comm::Group& group, BucketLimits limits = {});

  GradientStep begin_step(int micro_batches = 1);

  comm::Group& group() noexcept { return group_; }
  torch::nn::Module& module() noexcept { return module_; }
  std::size_t bucket_count() const noexcept { return reducer_.bucket_count(); }

  // What the last complete step communicated, and when its last backward ran and its wait ended.
  struct StepTimes {
    profile::Interval backward;
    profile::Interval exposed;  // from the end of backward until all gradients were reduced
  };
  const std::vector<profile::CommunicationSpan>& communication() const noexcept {
    return reducer_.communication();
  }
  const StepTimes& times() const noexcept { return times_; }

 private:
  friend class GradientStep;

  torch::nn::Module& module_;
  comm::Group& group_;
  Reducer reducer_;
  StepTimes times_;
};

}  // namespace ddp
