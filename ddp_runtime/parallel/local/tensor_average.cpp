// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/local/tensor_average.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "ddp_runtime/parallel/buckets/tensor_buckets.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {
namespace {

std::vector<torch::Tensor> values_of(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor.detach());
  return values;
}

// The sum reads memory once. It may overflow although all values are finite.
bool has_finite_values(const torch::Tensor& flat) {
  if (std::isfinite(flat.sum().item<double>())) return true;
  return flat.isfinite().all().item<bool>();
}

}  // namespace

TensorAverage::TensorAverage(comm::Group& group, std::vector<NamedTensor> tensors,
                             const BucketLimits& limits)
    : group_(group),
      tensors_(std::move(tensors)),
      plan_(plan_buckets_of(tensors_, reverse_order(tensors_.size()), limits)),
      store_(group, values_of(tensors_), plan_) {
  for (std::size_t b = 0; b < store_.size(); ++b) {
    bytes_ += static_cast<std::int64_t>(store_.bucket(b).nbytes());
  }
}

bool TensorAverage::start() {
  const torch::NoGradGuard no_grad;
  works_.clear();
  bool finite = true;
  for (std::size_t b = 0; b < store_.size(); ++b) {
    for (const std::size_t i : plan_.buckets[b]) store_.gradient(i).copy_(tensors_[i].tensor);
    const auto& bucket = store_.bucket(b);
    finite = has_finite_values(bucket) && finite;
    works_.push_back(group_.all_reduce(buffer_of(bucket), comm::ReduceOp::sum,
                                       fmt::format("average, bucket {}", b), store_.memory(b)));
  }
  return finite;
}

void TensorAverage::wait() {
  const torch::NoGradGuard no_grad;
  for (std::size_t b = 0; b < works_.size(); ++b) {
    works_[b].wait();
    store_.bucket(b).div_(group_.size());
  }
  works_.clear();
}

void TensorAverage::take() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    torch::Tensor(tensors_[i].tensor).detach().copy_(store_.gradient(i));
  }
}

}  // namespace ddp
