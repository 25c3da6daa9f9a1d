// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/memory/gradient_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/parallel/device/step_marks.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {

GradientShards::GradientShards(const ShardGroups& groups, std::vector<const FlatShard*> flats,
                               const ReduceType& reduce_type)
    : groups_(groups),
      flats_(std::move(flats)),
      reduce_type_(reduce_type),
      sums_(flats_.size()),
      has_sum_(flats_.size()) {
  std::size_t most = 0;
  std::size_t most_of_equal = 0;
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    const auto& flat = *flats_[i];
    const auto size = sent_as(i).dtype().itemsize();
    most = std::max(most, static_cast<std::size_t>(flat.elements()) * size);
    if (groups_.sharing.size() > 1 && flat.has_equal_parts()) {
      most_of_equal = std::max(most_of_equal, flat.sizes().front() * size);
    }
  }
  for (auto& buffer : buffers_) {
    buffer.memory = groups_.sharing.allocate(most);
    if (most_of_equal > 0) buffer.part = groups_.sharing.allocate(most_of_equal);
  }
}

void GradientShards::begin_step() {
  std::fill(has_sum_.begin(), has_sum_.end(), false);
  spans_.clear();
  for (auto& buffer : buffers_) {
    if (!std::exchange(buffer.flat, std::nullopt)) continue;
    std::exchange(buffer.work, comm::Work()).wait();
  }
  for (const auto& reduction : std::exchange(across_, {})) reduction.work.wait();
}

// A rank that has all of it sends nothing, so it rounds nothing either.
torch::TensorOptions GradientShards::sent_as(std::size_t flat) const {
  const auto options = flats_[flat]->options();
  if (groups_.sharing.size() == 1) return kept_as(flat);
  return options.dtype(type_on_the_wire(options.dtype().toScalarType(), reduce_type_));
}

torch::TensorOptions GradientShards::kept_as(std::size_t flat) const {
  const auto options = flats_[flat]->options();
  return options.dtype(type_of_the_sum(options.dtype().toScalarType(), reduce_type_));
}

torch::Tensor GradientShards::tensor_in(const Buffer& buffer, std::size_t flat) const {
  return tensor_on(buffer.memory, flats_[flat]->elements(), sent_as(flat));
}

torch::Tensor GradientShards::mine_in(const Buffer& buffer, std::size_t flat) const {
  const auto& shard = *flats_[flat];
  if (groups_.sharing.size() > 1 && shard.has_equal_parts()) {
    return tensor_on(buffer.part, shard.elements_of_mine(), sent_as(flat));
  }
  return tensor_in(buffer, flat).narrow(0, shard.first_of_mine(), shard.elements_of_mine());
}

comm::Work GradientShards::start_reduction(const Buffer& buffer, std::size_t flat) {
  const auto& shard = *flats_[flat];
  const auto all = buffer_of(tensor_in(buffer, flat));
  if (!shard.has_equal_parts()) {
    return groups_.sharing.reduce_scatter(all, comm::Cut{shard.sizes()}, comm::ReduceOp::sum,
                                          buffer.label, buffer.memory);
  }
  using Both = std::pair<std::shared_ptr<std::byte>, std::shared_ptr<std::byte>>;
  return groups_.sharing.reduce_scatter(all, buffer_of(mine_in(buffer, flat)), comm::ReduceOp::sum,
                                        buffer.label,
                                        std::make_shared<Both>(buffer.memory, buffer.part));
}

void GradientShards::reduce(std::size_t flat, const std::vector<torch::Tensor>& gradients,
                            const std::string& label, bool last) {
  Buffer& buffer = buffers_[std::exchange(next_, (next_ + 1) % buffers_.size())];
  collect(buffer);
  const auto& shard = *flats_[flat];
  const auto all = tensor_in(buffer, flat);
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> to;
  std::vector<torch::Tensor> from;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto there = shard.window_of(all, i);
    if (!gradients[i].defined()) {
      there.zero_();
      continue;
    }
    to.push_back(there);
    from.push_back(gradients[i]);
  }
  if (!to.empty()) torch_compat::copy_each(to, from);
  buffer.flat = flat;
  buffer.label = label;
  buffer.last = last;
  if (groups_.sharing.size() == 1) return;
  buffer.work = start_reduction(buffer, flat);
}

// Waits for the reduction in the buffer, if there is one, and takes this rank's part out of it.
void GradientShards::collect(Buffer& buffer) {
  if (!buffer.flat) return;
  const std::size_t flat = *std::exchange(buffer.flat, std::nullopt);
  const auto work = std::exchange(buffer.work, comm::Work());
  work.wait();
  const torch::NoGradGuard no_grad;
  const auto mine = mine_in(buffer, flat);
  if (!sums_[flat].defined()) sums_[flat] = torch::empty_like(mine, kept_as(flat));
  has_sum_[flat] ? sums_[flat].add_(mine) : sums_[flat].copy_(mine);
  has_sum_[flat] = true;
  if (groups_.sharing.size() > 1) record(buffer.label, tensor_in(buffer, flat).nbytes(), work);
  if (groups_.across == nullptr || !buffer.last) return;
  across_.push_back({flat, fmt::format("{} of other nodes", buffer.label), {}, {}});
  if (sums_[flat].is_cpu()) start(across_.back());
}

void GradientShards::start(Across& reduction) {
  const auto type = flats_[reduction.flat]->options().dtype().toScalarType();
  reduction.sum = sums_[reduction.flat].to(type_on_the_wire(type, reduce_type_));
  reduction.work =
      groups_.across->all_reduce(buffer_of(reduction.sum), comm::ReduceOp::sum, reduction.label,
                                 std::make_shared<torch::Tensor>(reduction.sum));
}

void GradientShards::end(const Across& reduction) {
  reduction.work.wait();
  record(reduction.label, reduction.sum.nbytes(), reduction.work);
  auto& sum = sums_[reduction.flat];
  if (!sum.is_same(reduction.sum)) sum.copy_(reduction.sum);
}

void GradientShards::record(const std::string& label, std::size_t bytes, const comm::Work& work) {
  if (marks_ != nullptr) return marks_->add(label, bytes, work);
  if (!work.done()) return;
  const auto times = work.times();
  spans_.push_back({label, bytes, {times.started, times.finished}});
}

void GradientShards::finish() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    collect(buffers_[(next_ + i) % buffers_.size()]);
  }
  for (auto& reduction : across_) {
    if (!sums_[reduction.flat].is_cpu()) start(reduction);
  }
  for (const auto& reduction : std::exchange(across_, {})) end(reduction);
}

torch::Tensor GradientShards::sum_of(std::size_t flat) const {
  return has_sum_[flat] ? sums_[flat] : torch::Tensor();
}

std::vector<profile::CommunicationSpan> GradientShards::take_spans() {
  return std::exchange(spans_, {});
}

}  // namespace ddp
