// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/asynchronous/stale_synchronous.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "ddp_runtime/parameter_server/parameter_server.h"

namespace ddp {
namespace {

std::span<float> span_of(const torch::Tensor& flat) {
  return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

// Calls use(parameter, window) for each parameter and its slice of `flat`.
template <class Use>
void for_each_window(const std::vector<NamedTensor>& parameters, const torch::Tensor& flat,
                     const Use& use) {
  std::int64_t first = 0;
  for (const auto& p : parameters) {
    use(p, flat.narrow(0, first, p.tensor.numel()).view(p.tensor.sizes()));
    first += p.tensor.numel();
  }
}

void require_trainable(torch::nn::Module& module, const std::vector<NamedTensor>& parameters) {
  if (communicates_in_forward(module)) {
    throw UsageError(
        "SyncBatchNorm makes all ranks wait for each other in every forward pass, which is exactly "
        "what training with staleness avoids; use torch::nn::BatchNorm, or train synchronously");
  }
  for (const auto& [name, tensor] : parameters) {
    if (tensor.scalar_type() == torch::kFloat32 && tensor.device().is_cpu()) continue;
    throw UsageError(
        fmt::format("the parameter server keeps float32 in host memory, and {} is {} on {}; train "
                    "synchronously",
                    name, c10::toString(tensor.scalar_type()), tensor.device().str()));
  }
}

}  // namespace

StaleSynchronous::StaleSynchronous(torch::nn::Module& module, comm::Group& group,
                                   const StaleSynchronousOptions& options,
                                   std::span<const torch::Tensor> decayed)
    : group_(group), options_(options), buffers_(named_buffers(module)) {
  auto state = named_parameters(module);
  for (const auto& p : state) {
    if (p.tensor.requires_grad()) parameters_.push_back(p);
  }
  require_trainable(module, parameters_);
  state.insert(state.end(), buffers_.begin(), buffers_.end());
  require_same_model(group, state);
  broadcast_from_leader(group, state);

  std::unordered_set<const c10::TensorImpl*> decays;
  for (const auto& tensor : decayed) decays.insert(tensor.unsafeGetTensorImpl());
  const auto rest = std::stable_partition(
      parameters_.begin(), parameters_.end(),
      [&](const NamedTensor& p) { return decays.contains(p.tensor.unsafeGetTensorImpl()); });
  std::int64_t elements = 0;
  for (auto p = parameters_.begin(); p != parameters_.end(); ++p) {
    if (p == rest) decayed_ = elements;
    elements += p->tensor.numel();
  }
  if (rest == parameters_.end()) decayed_ = elements;
  values_ = torch::empty({elements});
  gradients_ = torch::empty({elements});
  velocity_ = torch::zeros({elements});
  if (options_.momentum <= 0) return;
  for_each_window(parameters_, velocity_, [&](const NamedTensor& p, const torch::Tensor& window) {
    momentum_.push_back({p.name, window});
  });
}

StaleSynchronous::~StaleSynchronous() = default;

// Called at the first step and not in the constructor, so that the caller can load parameters and
// momentum from a checkpoint first.
void StaleSynchronous::start() {
  const torch::NoGradGuard no_grad;
  for_each_window(parameters_, values_, [](const NamedTensor& p, const torch::Tensor& window) {
    window.copy_(p.tensor);
  });
  server_ = std::make_unique<parameter_server::ParameterServer>(
      group_, span_of(values_), span_of(velocity_),
      parameter_server::ServerOptions{options_.staleness, options_.momentum, options_.weight_decay,
                                      static_cast<std::size_t>(decayed_)});
}

void StaleSynchronous::backward(const torch::Tensor& loss, int micro_batches) {
  const double share = 1.0 / (static_cast<double>(group_.size()) * micro_batches);
  loss.backward(torch::full_like(loss, share));
}

void StaleSynchronous::step(double learning_rate) {
  const torch::NoGradGuard no_grad;
  for_each_window(parameters_, gradients_, [&](const NamedTensor& p, const torch::Tensor& window) {
    const auto& gradient = p.tensor.grad();
    if (!gradient.defined() && !options_.allow_unused) {
      throw RuntimeError(fmt::format(
          "the parameter {} got no gradient in this step; use it in the loss, freeze it, or set "
          "allow_unused",
          p.name));
    }
    if (gradient.defined()) {
      window.copy_(gradient);
    } else {
      window.zero_();
    }
  });
  push_and_pull(span_of(gradients_), learning_rate);
}

void StaleSynchronous::step_without_update() {
  push_and_pull({}, 0);
}

void StaleSynchronous::push_and_pull(std::span<const float> gradient, double learning_rate) {
  const torch::NoGradGuard no_grad;
  if (!server_) start();
  settled_ = false;
  server_->push_and_pull(gradient, learning_rate, span_of(values_));
  for_each_window(parameters_, values_, [](const NamedTensor& p, const torch::Tensor& window) {
    torch::Tensor(p.tensor).copy_(window);
  });
  forget_gradients();
}

void StaleSynchronous::forget_gradients() {
  for (auto& p : parameters_) p.tensor.mutable_grad().reset();
}

void StaleSynchronous::settle() {
  if (settled_) return;
  const torch::NoGradGuard no_grad;
  server_->settle(span_of(values_), span_of(velocity_));
  for_each_window(parameters_, values_, [](const NamedTensor& p, const torch::Tensor& window) {
    torch::Tensor(p.tensor).copy_(window);
  });
  broadcast_from_leader(group_, buffers_);
  settled_ = true;
}

void StaleSynchronous::close() {
  if (server_) server_->close();
}

StaleSynchronous::Lead StaleSynchronous::lead() const {
  if (!server_) return {};
  const auto lead = server_->lead();
  return {lead.largest, lead.mean};
}

std::size_t StaleSynchronous::bytes_per_step() const {
  return server_ ? server_->bytes_per_step() : 0;
}

}  // namespace ddp
