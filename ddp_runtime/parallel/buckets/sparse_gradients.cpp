// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/sparse_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

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

// Waits.
profile::CommunicationSpan span_of(const comm::Work& work, const std::string& label,
                                   const torch::Tensor& data) {
  work.wait();
  const auto times = work.times();
  return {label, data.nbytes(), {times.started, times.finished}};
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
  const auto work = group.all_gather(bytes_of(padded), bytes_of(all), label, keep);
  spans.push_back(span_of(work, label, all));
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
  auto& gradient = torch::Tensor(weight).mutable_grad();
  if (group_.size() * most > weight.size(0) && can_be_communicated(weight.scalar_type())) {
    gradient = sum_as_a_whole(parameter, gradient, spans);
    return;
  }
  auto sizes = weight.sizes().vec();
  sizes[0] = 0;
  auto indices = torch::empty({0}, torch::kInt64);
  auto values = torch::empty(sizes, weight.options().requires_grad(false));
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

torch::Tensor SparseGradients::sum_as_a_whole(const NamedTensor& parameter,
                                              const torch::Tensor& gradient,
                                              std::vector<profile::CommunicationSpan>& spans) {
  const torch::Tensor& weight = parameter.tensor;
  const auto sum = torch::zeros(weight.sizes(), weight.options().requires_grad(false));
  const auto used = torch::zeros({weight.size(0)}, torch::kUInt8);
  if (gradient.defined()) {
    const auto rows = gradient.indices()[0];
    sum.index_copy_(0, rows, gradient.values());
    used.index_fill_(0, rows, 1);
  }
  const auto keep = std::make_shared<std::pair<torch::Tensor, torch::Tensor>>(sum, used);
  const auto label = fmt::format("sparse gradient of {}", parameter.name);
  const auto summed = group_.all_reduce(buffer_of(sum), comm::ReduceOp::sum, label, keep);
  const auto joined = group_.all_reduce(buffer_of(used), comm::ReduceOp::max, label, keep);
  spans.push_back(span_of(summed, label, sum));
  spans.push_back(span_of(joined, label, used));
  const auto rows = used.nonzero().squeeze(1);
  return torch::sparse_coo_tensor(rows.unsqueeze(0), sum.index_select(0, rows), weight.sizes())
      .coalesce();
}

}  // namespace ddp
