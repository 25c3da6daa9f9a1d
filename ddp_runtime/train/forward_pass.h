// The forward half of a step, the same whether gradients then travel synchronously or not.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/evaluation.h"

namespace ddp::train {

struct MicroBatchLoss {
  torch::Tensor tensor;  // for backward
  double value = 0;
};

// Takes the next micro-batch from `batches` and runs forward and loss on it; records both times.
// Throws UsageError if the loss is not one number.
MicroBatchLoss forward_loss(data::Prefetcher& batches, const Objective& objective,
                            amp::Precision precision, profile::StepRecorder& recorder);

// Copies of the module's buffers, and back: what forward did to running means can be undone. No
// copies put nothing back.
std::vector<torch::Tensor> copy_buffers(const torch::nn::Module& module);
void put_back_buffers(torch::nn::Module& module, const std::vector<torch::Tensor>& copies);

}  // namespace ddp::train
