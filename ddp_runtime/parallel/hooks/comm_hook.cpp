// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/hooks/comm_hook.h"

#include <algorithm>
#include <array>
#include <memory>

#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {

Sent GradientBucket::all_reduce(const torch::Tensor& data) {
  // The tensor is held until the collective is over, even if the hook is destroyed first.
  auto work = group_.all_reduce(buffer_of(data), comm::ReduceOp::sum, name_,
                                std::make_shared<torch::Tensor>(data));
  return note(std::move(work), data.nbytes());
}

Sent GradientBucket::all_to_all(const torch::Tensor& output, const torch::Tensor& input) {
  auto work = group_.all_to_all(
      buffer_of(input), buffer_of(output), {}, name_,
      std::make_shared<std::array<torch::Tensor, 2>>(std::array<torch::Tensor, 2>{output, input}));
  return note(std::move(work), input.nbytes() / 2);
}

Sent GradientBucket::all_gather(const torch::Tensor& output, const torch::Tensor& input) {
  auto work = group_.all_gather(
      buffer_of(input), buffer_of(output), name_,
      std::make_shared<std::array<torch::Tensor, 2>>(std::array<torch::Tensor, 2>{output, input}));
  return note(std::move(work), output.nbytes() / 2);
}

Sent GradientBucket::note(comm::Work work, std::size_t bytes) {
  bytes_ += bytes;
  works_.push_back(work);
  return Sent(std::move(work));
}

profile::Interval GradientBucket::communication() const {
  profile::Interval interval;
  for (const auto& work : works_) {
    if (!work.done()) continue;
    const auto times = work.times();
    if (interval.begin == interval.end) interval = {times.started, times.finished};
    interval.begin = std::min(interval.begin, times.started);
    interval.end = std::max(interval.end, times.finished);
  }
  return interval;
}

}  // namespace ddp
