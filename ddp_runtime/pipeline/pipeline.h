// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism for libtorch: a model is cut into stages, which ranks share, and each step
// into micro-batches, on which the stages work at the same time. The gradients are those of one
// process that accumulates the micro-batches, bit by bit.
//
//   std::vector<ddp::pipeline::Stage> stages = {make_stage(first), make_stage(second)};
//   ddp::pipeline::Pipeline pipe(world.group(), std::move(stages), loss);
//   torch::optim::SGD optimizer(pipe.parameters(), 0.1);
//   for (...) {
//     auto step = pipe.begin_step(micro_batches.size());
//     step.backward(micro_batches);
//     step.apply(optimizer);
//   }
//
// With several replicas of the pipeline, each on its own data, the ranks with the same stages
// average their gradients.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/options.h"
#include "ddp_runtime/pipeline/micro_batch.h"
#include "ddp_runtime/pipeline/operation_time.h"
#include "ddp_runtime/pipeline/own_stages.h"
#include "ddp_runtime/pipeline/schedule.h"
#include "ddp_runtime/pipeline/stage.h"
#include "ddp_runtime/pipeline/tied_weights.h"

namespace ddp::pipeline {

class Pipeline;

struct PipelineOptions {
  // zb_h1 needs layers whose backward can be split, such as ddp::SplitLinear (split_backward.h):
  // the gradients of all other weights are computed together with that of the stage's input.
  Schedule schedule = Schedule::one_f_one_b;
  // Pipelines on different data. Rank r of n replicas belongs to replica r % n, so that ranks with
  // the same stages follow each other, and share a node if they can.
  int replicas = 1;
  // Weights that several stages have in common.
  std::vector<TiedWeight> tied = {};
  // If set, each forward of a stage on a micro-batch has random numbers of its own, which depend on
  // this seed, the step, the stage and the micro-batch (counted over all replicas) only.
  // Without it, dropout depends on how the model is cut.
  std::optional<std::uint64_t> seed = {};
  // Where stages compute; by default where the parameters of this rank's stages are.
  std::optional<torch::Device> device = {};
  // Whether PipelineTimes has the times of the operations, too.
  bool record_operations = false;
  // How replicas average. `ignore`, `hook`, `reduce_type`, `ordered_blocks` and
  // `check_parameters_every` are not supported.
  DataParallelOptions data_parallel = {.check_parameters_every = 0};
};

struct PipelineTimes {
  double seconds = 0;    // of the last backward() or evaluate(), without averaging over replicas
  double computing = 0;  // the part in which this rank did not wait for a neighbor
  std::vector<OperationTime> operations = {};  // see PipelineOptions::record_operations
};

// One optimizer step.
class PipelineStep {
 public:
  // Collective. Runs all stages on all micro-batches, of which there must be as many as
  // begin_step() was given; on ranks with neither the first nor the last stage the list may be
  // empty. Returns the loss of each micro-batch on ranks with the last stage, nothing elsewhere.
  // Then the gradients are those of the mean over all micro-batches and replicas, times
  // `loss_scale`, which must be the same on all ranks: see amp::GradScaler. The losses returned are
  // not scaled. clip_gradients() and apply() are for gradients that were divided by it.
  //
  // An exception in a stage reaches all ranks, with the stage and the micro-batch. After one, this
  // object cannot take part in another step.
  std::vector<torch::Tensor> backward(std::span<const MicroBatch> micro_batches,
                                      float loss_scale = 1);
  bool complete() const noexcept { return complete_; }
  // Collective, after backward(): the mean loss over all micro-batches and replicas.
  double mean_loss() const;
  // Calls optimizer.step(). Throws RuntimeError before backward(), and UsageError for LBFGS.
  void apply(torch::optim::Optimizer& optimizer);

 private:
  friend class Pipeline;
  PipelineStep(Pipeline& pipeline, int micro_batches, std::int64_t tag, std::int64_t number)
      : pipeline_(&pipeline), micro_batches_(micro_batches), tag_(tag), number_(number) {}
  void require_newest() const;

  Pipeline* pipeline_;
  int micro_batches_;
  std::int64_t tag_;
  std::int64_t number_;
  bool complete_ = false;
  std::vector<torch::Tensor> losses_;  // on ranks with the last stage
  std::vector<double> weights_;        // of the losses in the mean
};

class Pipeline {
 public:
  // Collective. `stages` has all stages in their order; a rank needs only its own, and the others
  // may be empty: see own_stages(). With n ranks per replica, stage s runs on rank s % n of each
  // replica. `loss` is needed only on ranks with the last stage. `group` must outlive this object.
  // Replicas take the values of the first one. Throws UsageError for a number of stages that does
  // not fit the ranks and the schedule, and RuntimeError if the ranks have different options.
  Pipeline(comm::Group& group, std::vector<Stage> stages, Loss loss,
           const PipelineOptions& options = {});
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline();

  // Collective with several replicas. Throws UsageError for a number of micro-batches that the
  // schedule cannot have. `tag` is as in DistributedDataParallel::begin_step().
  PipelineStep begin_step(int micro_batches, std::int64_t tag = 0);

  // Collective, between two steps: forward without gradients. Any number of micro-batches, the same
  // on the ranks of a replica. Returns the outputs of the last stage on its ranks, nothing
  // elsewhere. Does not change the mode of the modules (torch::nn::Module::eval()).
  std::vector<torch::Tensor> evaluate(std::span<const MicroBatch> micro_batches);

  // Collective over the ranks of a replica, between backward() and apply(). Scales the gradients so
  // that the 2-norm of those of all stages is at most `max_norm`, and returns the norm before that.
  // A weight that stages have in common counts once. The result does not depend on the number of
  // ranks. If the norm is not finite, all gradients become NaN.
  double clip_gradients(double max_norm);

  // Of this rank's stages, named "stages.2.weight".
  std::vector<NamedTensor> named_parameters() const;
  std::vector<torch::Tensor> parameters() const;

  // The numbers of this rank's stages.
  std::vector<int> own_stages() const;
  // Not collective. Returns "it ran stages 1 and 3 of the pipeline in step 5" for a rank of the
  // job, or "" if it is in none. The errors of this object have it; it is for those of other
  // collectives in which a rank was lost.
  std::string describe_stages_of(int world_rank) const;
  bool has_first_stage() const noexcept;
  bool has_last_stage() const noexcept;
  int replica() const noexcept;
  const PipelineTimes& times() const noexcept;

 private:
  friend class PipelineStep;
  class Parts;

  std::unique_ptr<Parts> parts_;
};

// The stages that a rank of `group` runs, for programs that build no others.
std::vector<int> own_stages(const comm::Group& group, int stages, int replicas = 1);

}  // namespace ddp::pipeline
