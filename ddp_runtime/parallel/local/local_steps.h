// SPDX-License-Identifier: Apache-2.0
// Local steps, for slow networks: ranks step alone, and average their parameters after every few
// steps (local SGD, post-local SGD), or take them as the gradient of an outer optimizer (DiLoCo).
// See docs/parallelism.md.
//
//   ddp::LocalSteps local(*net, world.group(), {.every = 10});
//   ddp::DistributedDataParallel replica(*net, local.gradient_group());
//   for (...) {
//     local.begin_step();
//     auto step = replica.begin_step();
//     step.backward(loss_of(net->forward(x), y));
//     step.apply(optimizer);            // each rank's own, with its own state
//     local.end_step();                 // in every tenth step, the average
//   }
//   local.settle();                     // the average on all ranks: evaluate, save
//
// Note [Averages of local steps]
// Between two averages nothing is exchanged, except within a node with LocalWithin::node. An
// average is that of all ranks, so nodes count by their ranks. Every rank adds up the same
// reduction, and takes the same outer step, so all ranks have the same bits afterwards.
//
// Averaged are the parameters that require gradients, and floating-point buffers, such as the
// statistics of BatchNorm, which an outer step leaves out. Other buffers take rank 0's values.
// The state of the optimizer stays each rank's own.
//
// Before a rank takes any mean, the ranks exchange their step and whether their parameters are
// finite. So values that are not finite stay on the rank that has them, which the error names.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/local/local_options.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

class TensorAverage;

class LocalSteps {
 public:
  // Collective. Parameters and buffers take rank 0's values. Throws on all ranks: RuntimeError if
  // the models differ; UsageError if the options differ or are out of range, for parameters of a
  // type shorter than float32, whose small changes an average would round away, and for layers that
  // communicate in forward. `module` and `group` must outlive this object.
  LocalSteps(torch::nn::Module& module, comm::Group& group, const LocalStepsOptions& options);
  LocalSteps(const LocalSteps&) = delete;
  LocalSteps& operator=(const LocalSteps&) = delete;
  ~LocalSteps();

  // The ranks that average the gradients of the next step: all of them in the first options.from
  // steps, then those of this rank's machine, or this rank alone. Make another replica when this
  // changes. Lives as long as the group of the constructor.
  comm::Group& gradient_group() const noexcept;
  // Whether the next step is one of the first options.from ones.
  bool is_synchronous() const noexcept { return steps_ < options_.from; }
  // Whether end_step() of the next step averages.
  bool averages_next() const noexcept {
    return !is_synchronous() && (steps_ + 1 - options_.from) % options_.every == 0;
  }

  // Before each step: gives this rank its own parameters back after settle().
  void begin_step();
  // After each update. Collective after every options.every local steps, and then returns true.
  // Throws RuntimeError, on all ranks, if the ranks are in different steps, or naming those whose
  // parameters are not finite. No parameter has changed then.
  bool end_step();

  // Collective, between two steps: the parameters and buffers of all ranks become their mean until
  // begin_step(), without an outer step. Does nothing if they are the same already. Throws like
  // end_step().
  void settle();

  // What a checkpoint needs besides the module, between settle() and the next step. The tensors
  // share memory with this object.
  struct State {
    // This rank's parameters and buffers, if the ranks differ; those of the module are the mean.
    std::vector<NamedTensor> own = {};
    // Of Outer::nesterov, the same on all ranks: the parameters after the last average, if there
    // was a local step since; and the momentum, if it is not zero.
    std::vector<NamedTensor> start = {};
    std::vector<NamedTensor> velocity = {};
  };
  State state() const;
  // Not collective, before the first step: continues after `step` steps. The module has the
  // parameters of the checkpoint. Tensors of `saved` belong to the tensors of the module with the
  // same names; throws UsageError if the names or shapes differ.
  void restore(std::int64_t step, const State& saved);

  const LocalStepsOptions& options() const noexcept { return options_; }
  comm::Group& group() noexcept { return group_; }
  std::int64_t steps() const noexcept { return steps_; }
  // Whether the parameters of the ranks may differ: there was a local step since the last average.
  bool are_apart() const noexcept;
  // Of this object: number of averages after local steps, and the bytes that each one reduces.
  std::int64_t averages() const noexcept { return averages_; }
  std::int64_t bytes_per_average() const noexcept;

 private:
  enum class Then { settle, outer_step };
  void average(Then then);
  void require_agreement(Then then, bool finite);
  void step_outside();
  void compare_parameters();
  std::vector<NamedTensor> averaged() const;

  torch::nn::Module& module_;
  comm::Group& group_;
  LocalStepsOptions options_;
  comm::Group& within_;
  std::vector<NamedTensor> parameters_;  // that are averaged
  std::vector<NamedTensor> statistics_;  // floating-point buffers
  std::vector<NamedTensor> counts_;      // the other buffers
  // From the first average on.
  std::unique_ptr<TensorAverage> average_;
  std::unique_ptr<TensorAverage> average_of_statistics_;
  // Of Outer::nesterov, by parameter; empty if not known yet, and for a velocity that is zero.
  std::vector<torch::Tensor> start_;
  std::vector<torch::Tensor> velocity_;

  std::int64_t steps_ = 0;
  bool in_round_ = false;           // there was a local step since the last average
  std::vector<torch::Tensor> own_;  // while settled: of averaged()
  std::int64_t averages_ = 0;
  std::int64_t compared_step_ = 0;
};

}  // namespace ddp
