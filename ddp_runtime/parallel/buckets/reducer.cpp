// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/missing_gradients.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/tensor_buckets.h"
#include "ddp_runtime/parallel/buckets/used_parameters.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {
namespace {

std::vector<NamedTensor> trainable(std::vector<NamedTensor> parameters) {
  std::erase_if(parameters, [](const NamedTensor& p) { return !p.tensor.requires_grad(); });
  return parameters;
}

std::vector<torch::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const auto& p : parameters) tensors.push_back(p.tensor);
  return tensors;
}

std::optional<torch::Device> device_of(const std::vector<NamedTensor>& parameters) {
  std::optional<torch::Device> device;
  for (const auto& p : parameters) {
    if (!device) device = p.tensor.device();
    if (p.tensor.device() == *device) continue;
    throw UsageError(fmt::format(
        "parameter '{}' is on {}, but '{}' is on {}; a model that is trained data-parallel must "
        "be on one device in each process",
        p.name, p.tensor.device().str(), parameters.front().name, device->str()));
  }
  return device && !device->is_cpu() ? device : std::nullopt;
}

// Found when the replica is made rather than in a hook of its first backward.
void require_types_that_can_be_summed(const std::vector<NamedTensor>& parameters) {
  for (const auto& p : parameters) {
    const auto type = p.tensor.scalar_type();
    if (can_be_communicated(type)) continue;
    if (type == torch::kComplexFloat || type == torch::kComplexDouble) continue;
    throw UsageError(fmt::format(
        "parameter '{}' is of type {}, whose gradients cannot be averaged over the ranks{}", p.name,
        c10::toString(type), p.tensor.is_complex() ? "; make it ComplexFloat" : ""));
  }
}

// Complex numbers are summed as two real ones each, which are the last dimension: [..., 2].
torch::Tensor real_view(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(tensor) : tensor;
}

}  // namespace

Reducer::Reducer(comm::Group& group, std::vector<NamedTensor> parameters,
                 std::vector<NamedTensor> sparse, const DataParallelOptions& options)
    : group_(group),
      options_(options),
      parameters_(trainable(std::move(parameters))),
      sparse_(group, trainable(std::move(sparse))),
      plan_(plan_buckets_of(parameters_, reverse_order(parameters_.size()), options.buckets)),
      order_(plan_),
      device_(device_of(parameters_)),
      graph_(parameters_.size(), options_),
      used_(parameters_.size()) {
  require_reduce_type(options_);
  if (options_.reduce_type && !sparse_.empty()) {
    throw UsageError(
        "sparse gradients are exchanged in their own type, so they do not go together with a "
        "reduce type; leave it out");
  }
  hooks_.resize(parameters_.size());
  if (group_.size() == 1) {
    // So that micro-batches are added in the same type as on several ranks.
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto type = parameters_[i].tensor.scalar_type();
      if (type_of_the_sum(type, options_.reduce_type) != type) add_hook(i);
    }
    return;
  }
  require_types_that_can_be_summed(parameters_);
  if (device_) stream_ = torch_compat::current_stream(*device_);
  store_ = make_store();
  if (options_.hook) hook_.emplace(options_.hook);
  for (std::size_t i = 0; i < parameters_.size(); ++i) add_hook(i);
}

std::unique_ptr<BucketStore> Reducer::make_store() {
  return std::make_unique<BucketStore>(group_, tensors_of(parameters_), plan_,
                                       options_.reduce_type);
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

void Reducer::begin_step(int /*micro_batches*/) {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  sparse_.discard();
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  if (graph_.take_new_order()) rebuild();
}

void Reducer::begin_pass() {
  order_.reset();
  works_.clear();
  waited_ = 0;
  if (hook_) hook_->reset();
  graph_.begin_pass();
  has_data_ = true;
  armed_ = true;
}

// See Note [Gradients on a device].
void Reducer::require_stream() const {
  if (!device_ || torch_compat::current_stream(*device_) == stream_) return;
  throw UsageError(fmt::format(
      "backward runs on another stream of {} than the one on which DistributedDataParallel was "
      "constructed; make the same stream current for both",
      device_->str()));
}

void Reducer::begin_backward(const torch::Tensor& loss, bool last) {
  if (!store_ || !last) return;
  require_stream();
  const std::lock_guard lock(mutex_);
  begin_pass();
  settle_unreachable(loss);
}

// Parameters that this backward will not reach, as far as that is known.
void Reducer::settle_unreachable(const torch::Tensor& loss) {
  if (options_.static_graph) {
    for (const std::size_t index : graph_.unreachable()) settle_without_gradient(index);
  } else if (options_.allow_unused) {
    const auto graph = graph_of(loss);
    for (std::size_t i = 0; i < hooks_.size(); ++i) {
      if (!graph.contains(hooks_[i].accumulator.get())) settle_without_gradient(i);
    }
  }
}

void Reducer::pass_without_data(bool last) {
  if (!store_ || !last) return;
  const std::lock_guard lock(mutex_);
  begin_pass();
  has_data_ = false;
  settle_missing();
}

void Reducer::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  // A function may return no gradient for an input: then the parameter was not used.
  if (!parameters_[index].tensor.grad().defined()) return;
  if (!store_) return widen_gradient(parameters_[index].tensor, options_.reduce_type);
  take_gradient(index);
  if (armed_ && is_last_gradient(index)) mark_ready(index);
}

void Reducer::take_gradient(std::size_t index) {
  used_[index] = 1;
  torch::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const torch::Tensor& window = store_->gradient(index);
  if (gradient.is_same(window)) return;
  if (gradient.layout() != torch::kStrided) {
    throw RuntimeError(fmt::format(
        "parameter '{}' has a sparse gradient, which can be averaged over the ranks only for the "
        "weight of a torch::nn::Embedding or EmbeddingBag that was built with it before "
        "DistributedDataParallel (EmbeddingOptions::sparse)",
        parameters_[index].name));
  }
  if (device_ && armed_) return;
  if (device_) return widen_gradient(parameters_[index].tensor, options_.reduce_type);
  const torch::NoGradGuard no_grad;
  window.copy_(gradient);
  gradient = window;
}

// See Note [Gradients on a device].
void Reducer::pack(std::size_t bucket) {
  std::vector<torch::Tensor> windows;
  std::vector<torch::Tensor> gradients;
  const torch::NoGradGuard no_grad;
  for (const std::size_t index : plan_.buckets[bucket]) {
    torch::Tensor& gradient = parameters_[index].tensor.mutable_grad();
    const torch::Tensor& window = store_->gradient(index);
    if (!gradient.defined() || gradient.is_same(window)) continue;
    windows.push_back(window);
    gradients.push_back(std::exchange(gradient, window));
  }
  if (!windows.empty()) torch_compat::copy_each(windows, gradients);
}

// Whether this is the last gradient that the parameter gets in this pass.
bool Reducer::is_last_gradient(std::size_t index) {
  if (!options_.static_graph && order_.is_ready(index)) {
    throw RuntimeError(
        fmt::format("parameter '{}' got its gradient twice in one backward pass; a nested "
                    "backward(), as in hand-written activation checkpointing, does that: use "
                    "ddp::checkpointed(), or set static_graph",
                    parameters_[index].name));
  }
  return graph_.is_last_gradient(index, parameters_[index].name);
}

void Reducer::mark_ready(std::size_t index) {
  const auto [first, last] = order_.mark_ready(index);
  for (std::size_t bucket = first; bucket < last; ++bucket) launch(bucket);
}

// See Note [Unused parameters].
void Reducer::settle_without_gradient(std::size_t index) {
  if (used_[index] == 0) {
    const torch::NoGradGuard no_grad;
    store_->gradient(index).zero_();
  }
  mark_ready(index);
}

void Reducer::settle_missing() {
  for (const std::size_t index : order_.missing()) settle_without_gradient(index);
}

void Reducer::launch(std::size_t bucket) {
  if (device_) pack(bucket);
  store_->put_into_sent(bucket);
  if (cut_) return cut_([this, bucket] { send(bucket); });
  if (hook_) return hook_->start(bucket_for_hook(bucket));
  send(bucket);
}

void Reducer::send(std::size_t bucket) {
  works_.push_back(group_.all_reduce(buffer_of(real_view(store_->sent(bucket))),
                                     comm::ReduceOp::sum, label(bucket), store_->memory(bucket)));
}

GradientBucket Reducer::bucket_for_hook(std::size_t bucket) const {
  std::vector<BucketMember> members;
  for (const std::size_t index : plan_.buckets[bucket]) {
    members.push_back({index, real_view(store_->gradient(index)), used_[index] != 0});
  }
  const auto all = real_view(store_->bucket(bucket)).view({-1});
  return {group_, label(bucket), passes_, all, std::move(members), loss_scale_};
}

void Reducer::wait_for_bucket() {
  const std::size_t bucket = waited_++;
  works_[bucket].wait();
  store_->take_from_sent(bucket);
  const auto bytes = store_->sent(bucket).nbytes();
  if (marks_ != nullptr) return marks_->add(label(bucket), bytes, works_[bucket]);
  if (!works_[bucket].done()) return;
  const auto times = works_[bucket].times();
  spans_.push_back({label(bucket), bytes, {times.started, times.finished}});
}

void Reducer::wait_for_buckets() {
  ++passes_;
  if (hook_) {
    spans_ = hook_->finish();
    return;
  }
  while (waited_ < works_.size()) wait_for_bucket();
}

void Reducer::launch_use_map() {
  use_map_ = std::make_shared<std::vector<std::uint8_t>>(used_);
  use_map_work_ = group_.all_reduce(comm::buffer_of(std::span(*use_map_)), comm::ReduceOp::max,
                                    "map of used parameters", use_map_);
}

bool Reducer::begin_buckets() {
  if (!store_) return false;
  armed_ = false;
  spans_.clear();
  if (!graph_.may_miss_gradients()) require_gradients();
  settle_missing();
  if (hook_ || graph_.tracks_use() || !sparse_.empty()) return false;
  publish_gradients();
  return true;
}

std::vector<torch::Tensor> Reducer::next_bucket() {
  if (waited_ == works_.size()) return {};
  wait_for_bucket();
  std::vector<torch::Tensor> parameters;
  for (const std::size_t index : plan_.buckets[waited_ - 1]) {
    parameters.push_back(parameters_[index].tensor);
  }
  return parameters;
}

void Reducer::finish() {
  if (!store_) return warn_of_missing();
  if (armed_) begin_buckets();
  const bool asks = graph_.tracks_use();
  if (asks) launch_use_map();
  wait_for_buckets();
  if (asks) {
    use_map_work_.wait();
    used_ = *use_map_;
  }
  publish_gradients();
  for (auto& span : sparse_.reduce()) spans_.push_back(std::move(span));
  graph_.end_pass(group_);
}

// Rebuilding buckets, communication hooks and the search for unused parameters come before: steps
// that need them are not captured.
void Reducer::begin_capture(const torch::Tensor& loss, const CutGraph& cut) {
  if (!store_) return;
  cut_ = cut;
  begin_backward(loss, true);
}

void Reducer::end_capture() {
  if (store_) begin_buckets();
}

void Reducer::leave_capture() noexcept {
  cut_ = nullptr;
  armed_ = false;
}

void Reducer::begin_replay() {
  works_.clear();
  spans_.clear();
  waited_ = 0;
}

void Reducer::finish_replay() {
  if (store_) wait_for_buckets();
}

// A parameter that this rank did not use must still be updated here if another rank used it.
void Reducer::publish_gradients() {
  const auto& used = graph_.with_gradients(used_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (used[i] != 0) {
      gradient = store_->gradient(i);
    } else {
      gradient.reset();
    }
  }
}

std::vector<std::int64_t> Reducer::gradient_order() const {
  return graph_.gradient_order();
}

void Reducer::expect_gradient_order(std::span<const std::int64_t> order) {
  if (store_) graph_.expect_gradient_order(order);
}

void Reducer::rebuild() {
  auto plan = plan_buckets_of(parameters_, graph_.ready_order(), options_.buckets);
  if (plan.buckets == plan_.buckets) return;
  plan_ = std::move(plan);
  order_ = LaunchOrder(plan_);
  store_.reset();  // before the new one is created, so that there are never two
  store_ = make_store();
}

void Reducer::require_gradients() const {
  const auto missing = missing_names();
  if (!missing.empty()) throw RuntimeError(describe(missing));
}

// Of parameters that got no gradient in this pass.
std::vector<std::string> Reducer::missing_names() const {
  std::vector<std::string> names;
  for (const std::size_t index : order_.missing()) names.push_back(parameters_[index].name);
  // A static graph may lack these: what each rank has used may change.
  if (!has_data_ || options_.static_graph) return names;
  for (auto& name : sparse_.missing()) names.push_back(std::move(name));
  return names;
}

std::string Reducer::describe(const std::vector<std::string>& missing) const {
  return describe_missing(missing, parameters_.size() + sparse_.size(), options_.static_graph);
}

// A single rank can do without a gradient. A user who tries a program on one rank should still see
// the error that several ranks would report.
void Reducer::warn_of_missing() {
  if (warned_of_missing_ || options_.allow_unused || options_.static_graph) return;
  auto missing = sparse_.missing();
  for (const auto& [name, tensor] : parameters_) {
    if (!tensor.grad().defined()) missing.push_back(name);
  }
  if (missing.empty()) return;
  warned_of_missing_ = true;
  fmt::print(stderr, "warning: on more than one rank this is an error: {}\n", describe(missing));
}

std::string Reducer::label(std::size_t bucket) const {
  return describe_bucket(plan_, parameters_, bucket);
}

}  // namespace ddp
