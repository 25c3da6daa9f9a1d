// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/forward_pass.h"

#include "ddp_runtime/data/batch_transfer.h"

namespace ddp::train {

data::Batch next_batch(data::Prefetcher& batches, profile::StepRecorder& recorder) {
  const auto span = recorder.measure(profile::Phase::data);
  return batches.next();
}

torch::Tensor loss_on_device(const data::Batch& batch, const Objective& objective,
                             torch::Device device, amp::Precision precision,
                             Derivatives derivatives) {
  const amp::AutocastGuard autocast(device.type(), precision);
  return loss_of(objective, batch, derivatives);
}

torch::Tensor forward_loss(const data::Batch& batch, const Objective& objective,
                           torch::Device device, amp::Precision precision,
                           profile::StepRecorder& recorder, Derivatives derivatives) {
  data::Batch there;
  {
    const auto span = recorder.measure(profile::Phase::data);
    there = to_device(device, batch);
  }
  const auto span = recorder.measure(profile::Phase::forward);
  return loss_on_device(there, objective, device, precision, derivatives);
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
