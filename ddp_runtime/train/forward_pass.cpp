// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/forward_pass.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/errors.h"
#include "ddp_runtime/train/batch_transfer.h"

namespace ddp::train {

MicroBatchLoss forward_loss(data::Prefetcher& batches, const Objective& objective,
                            torch::Device device, amp::Precision precision,
                            profile::StepRecorder& recorder) {
  data::Batch batch;
  {
    const auto span = recorder.measure(profile::Phase::data);
    batch = to_device(device, batches.next());
  }
  const auto span = recorder.measure(profile::Phase::forward);
  const amp::AutocastGuard autocast(device.type(), precision);
  const auto outputs = objective.forward(batch.inputs);
  const auto loss = objective.loss ? objective.loss(outputs, batch.targets)
                                   : mean_cross_entropy(outputs, batch.targets);
  if (loss.numel() != 1) {
    throw UsageError(fmt::format(
        "the loss must be one number, the mean over the batch, not a tensor of shape [{}]",
        fmt::join(loss.sizes(), ", ")));
  }
  return {loss, LateValue(loss)};
}

std::vector<torch::Tensor> copy_buffers(const torch::nn::Module& module) {
  std::vector<torch::Tensor> copies;
  for (const auto& buffer : module.buffers()) copies.push_back(buffer.clone());
  return copies;
}

void put_back_buffers(torch::nn::Module& module, const std::vector<torch::Tensor>& copies) {
  const torch::NoGradGuard no_grad;
  const auto buffers = module.buffers();
  for (std::size_t i = 0; i < copies.size(); ++i) buffers[i].copy_(copies[i]);
}

}  // namespace ddp::train
