// SPDX-License-Identifier: Apache-2.0
// The forward half of a step, for synchronous and asynchronous steps.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/objective/objective.h"

namespace ddp::train {

// Takes the next micro-batch, and records the time as that of data.
data::Batch next_batch(data::Prefetcher& batches, profile::StepRecorder& recorder);

// The loss of a batch on `device`. Throws UsageError if it is not one number.
torch::Tensor loss_on_device(const data::Batch& batch, const Objective& objective,
                             torch::Device device, amp::Precision precision,
                             Derivatives derivatives = Derivatives::all);

// The same for a micro-batch on the host, which it brings to `device`. Records the time of both.
// Does not wait for a device if the batch is in pinned memory.
torch::Tensor forward_loss(const data::Batch& batch, const Objective& objective,
                           torch::Device device, amp::Precision precision,
                           profile::StepRecorder& recorder,
                           Derivatives derivatives = Derivatives::all);

// Save and restore the module's buffers, to undo forward's changes to running means.
// put_back_buffers does nothing if `copies` is empty.
std::vector<torch::Tensor> copy_buffers(const torch::nn::Module& module);
void put_back_buffers(torch::nn::Module& module, const std::vector<torch::Tensor>& copies);

}  // namespace ddp::train
