// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sparse_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/each_module.h"
#include "ddp_runtime/parallel/tensor_buffer.h"

namespace ddp {
namespace {

constexpr std::int64_t kNoGradient = -1;

template <class Layer>
void add_sparse_weight(const torch::nn::Module& module,
                       std::unordered_set<const c10::TensorImpl*>& weights) {
  const auto* const layer = dynamic_cast<const Layer*>(&module);
  if (layer != nullptr && layer->options.sparse()) {
    weights.insert(layer->weight.unsafeGetTensorImpl());
  }
}

void require_rows(const NamedTensor& parameter) {
  const auto& gradient = parameter.tensor.grad();
  if (gradient.is_sparse() && gradient.sparse_dim() == 1) return;
  throw RuntimeError(
      fmt::format("parameter '{}' belongs to a layer with sparse gradients, but got one that is "
                  "not: it is used "
                  "in another way, too; build its layer without sparse gradients "
                  "(torch::nn::EmbeddingOptions::sparse)",
                  parameter.name));
}

// Every rank's `mine`, padded with zeros to `rows` rows: [ranks, rows, ...].
torch::Tensor gather_rows(comm::Group& group, const torch::Tensor& mine, std::int64_t rows,
                          const std::string& label,
                          std::vector<profile::CommunicationSpan>& spans) {
  auto sizes = mine.sizes().vec();
  sizes[0] = rows;
  const auto padded = torch::zeros(sizes, mine.options());
  padded.narrow(0, 0, mine.size(0)).copy_(mine);
  sizes.insert(sizes.begin(), group.size());
  auto all = torch::empty(sizes, mine.options());
  const auto keep = std::make_shared<std::pair<torch::Tensor, torch::Tensor>>(padded, all);
  auto work = group.all_gather(bytes_of(padded), bytes_of(all), label, keep);
  work.wait();
  const auto times = work.times();
  spans.push_back({label, all.nbytes(), {times.started, times.finished}});
  return all;
}

// The first counts[r] rows of part r, for all ranks.
torch::Tensor without_padding(const torch::Tensor& all, const std::vector<std::int64_t>& counts) {
  std::vector<torch::Tensor> parts;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const auto part = all[static_cast<std::int64_t>(rank)];
    parts.push_back(part.narrow(0, 0, std::max<std::int64_t>(0, counts[rank])));
  }
  return torch::cat(parts);
}

}  // namespace

std::unordered_set<const c10::TensorImpl*> sparse_weights(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> weights;
  for_each_module(module, [&](const std::string&, const torch::nn::Module& part) {
    add_sparse_weight<torch::nn::EmbeddingImpl>(part, weights);
    add_sparse_weight<torch::nn::EmbeddingBagImpl>(part, weights);
  });
  return weights;
}

SparseGradients::SparseGradients(comm::Group& group, std::vector<NamedTensor> parameters)
    : group_(group), parameters_(std::move(parameters)) {
  if (group_.size() == 1) return;
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.is_cpu()) continue;
    throw UsageError(fmt::format(
        "parameter '{}' is on {} and has sparse gradients, which are averaged on CPUs only; build "
        "its layer without sparse gradients (torch::nn::EmbeddingOptions::sparse)",
        name, c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true)));
  }
}

void SparseGradients::discard() {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

std::vector<std::string> SparseGradients::missing() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    if (!tensor.grad().defined()) names.push_back(name);
  }
  return names;
}

// Coalesces the gradients. The result is [ranks, parameters].
std::vector<std::int64_t> SparseGradients::gather_counts() {
  std::vector<std::int64_t> mine;
  for (auto& parameter : parameters_) {
    auto& gradient = parameter.tensor.mutable_grad();
    if (gradient.defined()) {
      require_rows(parameter);
      gradient = gradient.coalesce();
    }
    mine.push_back(gradient.defined() ? gradient._nnz() : kNoGradient);
  }
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group_.size()));
  group_
      .all_gather(comm::buffer_of(std::span(mine)), comm::buffer_of(std::span(all)),
                  "numbers of rows of sparse gradients")
      .wait();
  return all;
}

std::vector<profile::CommunicationSpan> SparseGradients::reduce() {
  std::vector<profile::CommunicationSpan> spans;
  if (empty() || group_.size() == 1) return spans;
  const torch::NoGradGuard no_grad;
  const auto all = gather_counts();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::vector<std::int64_t> counts;
    for (std::size_t at = i; at < all.size(); at += parameters_.size()) counts.push_back(all[at]);
    reduce(parameters_[i], counts, spans);
  }
  return spans;
}

void SparseGradients::reduce(const NamedTensor& parameter, const std::vector<std::int64_t>& counts,
                             std::vector<profile::CommunicationSpan>& spans) {
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == kNoGradient) return;
  const torch::Tensor& weight = parameter.tensor;
  auto sizes = weight.sizes().vec();
  sizes[0] = 0;
  auto indices = torch::empty({0}, torch::kInt64);
  auto values = torch::empty(sizes, weight.options().requires_grad(false));
  auto& gradient = torch::Tensor(weight).mutable_grad();
  if (gradient.defined()) {
    indices = gradient.indices()[0];
    values = gradient.values();
  }
  if (most > 0) {
    const auto label = fmt::format("sparse gradient of {}", parameter.name);
    indices = without_padding(gather_rows(group_, indices, most, label, spans), counts);
    values = without_padding(gather_rows(group_, values, most, label, spans), counts);
  }
  gradient = torch::sparse_coo_tensor(indices.unsqueeze(0), values, weight.sizes()).coalesce();
}

}  // namespace ddp
