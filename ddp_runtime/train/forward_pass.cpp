#include "ddp_runtime/train/forward_pass.h"

namespace ddp::train {

MicroBatchLoss forward_loss(data::Prefetcher& batches, const Forward& forward,
                            amp::Precision precision, profile::StepRecorder& recorder) {
  data::Batch batch;
  {
    const auto span = recorder.measure(profile::Phase::data);
    batch = batches.next();
  }
  const auto span = recorder.measure(profile::Phase::forward);
  const amp::AutocastGuard autocast(torch::kCPU, precision);
  MicroBatchLoss loss;
  loss.tensor = mean_cross_entropy(forward(batch.inputs), batch.targets);
  loss.value = loss.tensor.item<double>();
  return loss;
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
