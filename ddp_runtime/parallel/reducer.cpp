#include "ddp_runtime/parallel/reducer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/parallel/tensor_buffer.h"
#include "ddp_runtime/parallel/torch_compat.h"

namespace ddp {
namespace {

std::vector<NamedTensor> trainable(std::vector<NamedTensor> parameters) {
  std::erase_if(parameters, [](const NamedTensor& p) { return !p.tensor.requires_grad(); });
  return parameters;
}

BucketPlan plan_for(const std::vector<NamedTensor>& parameters, const BucketLimits& limits) {
  std::vector<GradientSize> sizes;
  sizes.reserve(parameters.size());
  for (const auto& p : parameters) {
    sizes.push_back({p.tensor.nbytes(), static_cast<int>(p.tensor.scalar_type())});
  }
  return plan_buckets(sizes, reverse_order(sizes.size()), limits);
}

std::vector<torch::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const auto& p : parameters) tensors.push_back(p.tensor);
  return tensors;
}

}  // namespace

Reducer::Reducer(comm::Group& group, std::vector<NamedTensor> parameters,
                 const BucketLimits& limits)
    : group_(group),
      parameters_(trainable(std::move(parameters))),
      plan_(plan_for(parameters_, limits)),
      order_(plan_) {
  if (group_.size() == 1) return;
  store_ = std::make_unique<BucketStore>(tensors_of(parameters_), plan_);
  hooks_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) add_hook(i);
}

Reducer::~Reducer() {
  for (const Hook& hook : hooks_) {
    if (hook.accumulator) hook.accumulator->del_post_hook(hook.key);
  }
}

void Reducer::add_hook(std::size_t index) {
  Hook& hook = hooks_[index];
  hook.accumulator = torch::autograd::impl::grad_accumulator(parameters_[index].tensor);
  hook.key = hook.accumulator->add_post_hook(
      torch_compat::after_accumulation([this, index] { on_gradient(index); }));
}

void Reducer::begin_step() {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void Reducer::arm() {
  order_.reset();
  works_.clear();
  armed_ = true;
}

void Reducer::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  torch::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  // A function may return no gradient for an input: the parameter took no part.
  if (!gradient.defined()) return;
  const torch::Tensor& window = store_->gradient(index);
  if (!gradient.is_same(window)) {
    const torch::NoGradGuard no_grad;
    window.copy_(gradient);
    gradient = window;
  }
  if (!armed_) return;
  if (order_.is_ready(index)) {
    throw RuntimeError(
        fmt::format("parameter '{}' got its gradient twice in one backward pass; a nested "
                    "backward(), as in hand-made activation checkpointing, does that",
                    parameters_[index].name));
  }
  const auto [first, last] = order_.mark_ready(index);
  for (std::size_t bucket = first; bucket < last; ++bucket) launch(bucket);
}

void Reducer::launch(std::size_t bucket) {
  works_.push_back(
      group_.all_reduce(buffer_of(store_->bucket(bucket)), comm::ReduceOp::sum, label(bucket)));
}

void Reducer::finish() {
  armed_ = false;
  spans_.clear();
  if (!store_) return;
  require_all_ready();
  for (std::size_t bucket = 0; bucket < works_.size(); ++bucket) {
    works_[bucket].wait();
    const auto times = works_[bucket].times();
    spans_.push_back(
        {label(bucket), store_->bucket(bucket).nbytes(), {times.started, times.finished}});
  }
}

void Reducer::require_all_ready() const {
  const auto missing = order_.missing();
  if (missing.empty()) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min<std::size_t>(missing.size(), 8); ++i) {
    names.push_back(parameters_[missing[i]].name);
  }
  throw RuntimeError(fmt::format(
      "no gradient for {} of {} parameters ({}{}): they take no part in this loss; use every "
      "parameter in forward, or freeze those with requires_grad_(false)",
      missing.size(), parameters_.size(), fmt::join(names, ", "),
      missing.size() > names.size() ? ", ..." : ""));
}

std::string Reducer::label(std::size_t bucket) const {
  const auto& members = plan_.buckets[bucket];
  const auto& first = parameters_[members.front()].name;
  if (members.size() == 1) return fmt::format("bucket {}: {}", bucket, first);
  return fmt::format("bucket {}: {} to {}", bucket, first, parameters_[members.back()].name);
}

}  // namespace ddp
