// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/shard_reductions.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/used_parameters.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {

ShardReductions::ShardReductions(const ShardGroups& groups, UnitGathers& gathers,
                                 const ShardOptions& options)
    : groups_(groups), gathers_(gathers), units_(gathers.units()), options_(options) {
  sum_of_.resize(units_.flats.size());
  std::vector<const FlatShard*> reduced;
  for (std::size_t flat = 0; flat < units_.flats.size(); ++flat) {
    if (!units_.is_trained(flat)) continue;
    sum_of_[flat] = reduced.size();
    reduced.push_back(units_.flats[flat].get());
  }
  sums_.emplace(groups_, std::move(reduced), options_.data_parallel.reduce_type);
  plan();
  used_.resize(units_.trained.size());
  // Last, because they refer to this object.
  for (std::size_t i = 0; i < units_.trained.size(); ++i) {
    auto& trained = units_.trained[i];
    trained.key = trained.accumulator->add_post_hook(
        torch_compat::after_accumulation([this, i] { on_gradient(i); }));
  }
}

ShardReductions::~ShardReductions() {
  for (const auto& trained : units_.trained) trained.accumulator->del_post_hook(trained.key);
}

void ShardReductions::plan() {
  launches_ = plan_reductions(units_, gathers_.expected());
  ready_.emplace(launches_);
}

void ShardReductions::begin_step() {
  for (auto& trained : units_.trained) trained.parameter.tensor.mutable_grad().reset();
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  sums_->begin_step();
  in_backward_ = false;
}

void ShardReductions::begin_backward(bool last) {
  in_last_ = last;
  in_backward_ = true;
  ready_->reset();
}

void ShardReductions::expect_none_beside(const torch::Tensor& loss) {
  const auto graph = graph_of(loss);
  for (std::size_t i = 0; i < units_.trained.size(); ++i) {
    if (!graph.contains(units_.trained[i].accumulator.get())) mark_ready(i);
  }
}

void ShardReductions::pass_without_data(std::size_t unit) {
  for (std::size_t i = 0; i < units_.trained.size(); ++i) {
    if (units_.trained[i].unit == unit) mark_ready(i);
  }
}

void ShardReductions::on_gradient(std::size_t index) {
  const std::lock_guard lock(gathers_.mutex());
  const auto& gradient = units_.trained[index].parameter.tensor.grad();
  // A function may return no gradient for an input: then the parameter was not used.
  if (!in_backward_ || !gradient.defined()) return;
  if (ready_->is_ready(index)) {
    throw RuntimeError(fmt::format(
        "parameter '{}' got its gradient twice in one backward pass; a nested backward(), as in "
        "hand-written activation checkpointing, does that: use ddp::checkpointed()",
        units_.trained[index].parameter.name));
  }
  used_[index] = 1;
  if (!reduces()) {
    widen_gradient(units_.trained[index].parameter.tensor, options_.data_parallel.reduce_type);
  }
  mark_ready(index);
}

void ShardReductions::mark_ready(std::size_t index) {
  gathers_.note_gradient(units_.trained[index].unit);
  const auto [first, last] = ready_->mark_ready(index);
  for (std::size_t place = first; place < last; ++place) launch(place);
}

void ShardReductions::launch(std::size_t place) {
  const auto& first = units_.trained[launches_.buckets[place].front()];
  // A rank that waits for another one's reduction must not keep that one waiting for a gather.
  gathers_.go_back_to(first.unit);
  if (!reduces()) return;
  std::vector<torch::Tensor> gradients;
  for (const std::size_t index : launches_.buckets[place]) {
    torch::Tensor& gradient = units_.trained[index].parameter.tensor.mutable_grad();
    gradients.push_back(std::exchange(gradient, torch::Tensor()));
  }
  sums_->reduce(sum_of_[first.flat].value(), gradients,
                fmt::format("gradients of {}", units_.all[first.unit].name), in_last_);
}

std::vector<std::string> ShardReductions::missing_names() const {
  std::vector<std::string> names;
  for (const std::size_t index : ready_->missing()) {
    names.push_back(units_.trained[index].parameter.name);
  }
  return names;
}

void ShardReductions::end_backward() {
  for (const std::size_t index : ready_->missing()) mark_ready(index);
  in_backward_ = false;
}

void ShardReductions::finish() {
  sums_->finish();
  if (options_.data_parallel.allow_unused) {
    groups_.all
        .all_reduce(comm::buffer_of(std::span(used_)), comm::ReduceOp::max,
                    "map of used parameters")
        .wait();
  } else if (groups_.all.size() > 1) {
    std::fill(used_.begin(), used_.end(), std::uint8_t{1});
  }
}

bool ShardReductions::has_gradient(PlaceInFlat place) const {
  const auto sum = sum_of_[place.flat];
  return sum && used_[units_.first_trained_of[place.flat] + place.array] != 0 &&
         sums_->sum_of(*sum).defined();
}

torch::Tensor ShardReductions::gradient_of(std::size_t flat, const FlatShard::Part& part) const {
  if (!has_gradient({flat, part.rows.array})) return {};
  return window(sums_->sum_of(*sum_of_[flat]), part.offset, {part.values.numel()}, {1});
}

}  // namespace ddp
