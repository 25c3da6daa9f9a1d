// SPDX-License-Identifier: Apache-2.0
// Evaluates a model on samples that it was not trained on.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/train/objective/evaluation_result.h"
#include "ddp_runtime/train/objective/objective.h"

namespace ddp::train {

// Collective: every rank evaluates its share of the first `samples` of `data`, and all ranks get
// the result over all shares. To evaluate the model that a checkpoint holds, buffers (the
// statistics of BatchNorm) take rank 0's values first. The module is in evaluation mode during the
// call; every submodule returns to its previous mode, even if the call throws. Throws UsageError if
// there are no targets, or if a metric is not one number.
Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Objective& objective,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision);

// Lets the ranks end an evaluation together after any batch. Both functions are collective; every
// rank calls both for every batch, also for those that it does not have.
struct Interruption {
  std::function<void()> ask;     // before a batch
  std::function<bool()> answer;  // after it; true: end the evaluation
};

// The same, but returns nullopt on all ranks if it was interrupted.
std::optional<Evaluation> evaluate(comm::Group& group, torch::nn::Module& module,
                                   const Objective& objective, const data::Dataset& data,
                                   std::int64_t samples, std::int64_t batch,
                                   amp::Precision precision, const Interruption& interruption);

// How a rank takes part in the evaluation of a model that is cut into stages.
struct StagedForward {
  int share = 0;                    // of the samples, the same on the ranks of a pipeline
  int shares = 1;                   // that there are
  bool reads = false;               // whether `outputs` needs the batches on this rank
  std::size_t batches_at_once = 1;  // for which `outputs` is called
  // Collective over the ranks of a pipeline. Returns the outputs of each batch on those with the
  // last stage, nothing elsewhere.
  std::function<std::vector<torch::Tensor>(const std::vector<data::Batch>&)> outputs;
};

// The same for a model that is cut into stages, whose buffers must be the same in all pipelines.
// The objective has no batch_loss, weight or metrics. It can be interrupted after the batches of
// each call of forward.outputs.
std::optional<Evaluation> evaluate_stages(comm::Group& group, torch::nn::Module& module,
                                          torch::Device device, const Objective& objective,
                                          const data::Dataset& data, std::int64_t samples,
                                          std::int64_t batch, amp::Precision precision,
                                          const StagedForward& forward,
                                          const Interruption& interruption);

}  // namespace ddp::train
