// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/stage_replicas.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/reducer.h"
#include "ddp_runtime/parallel/buckets/sparse_gradients.h"

namespace ddp::pipeline {
namespace {

// Moves those whose gradients are sparse to `sparse`.
std::vector<NamedTensor> dense_ones(std::vector<NamedTensor> parameters,
                                    const torch::nn::Module& module,
                                    std::vector<NamedTensor>& sparse) {
  const auto weights = sparse_weights(module);
  std::vector<NamedTensor> dense;
  for (auto& parameter : parameters) {
    const bool is_sparse = weights.contains(parameter.tensor.unsafeGetTensorImpl());
    (is_sparse ? sparse : dense).push_back(std::move(parameter));
  }
  return dense;
}

std::unique_ptr<Reducer> make_reducer(comm::Group& group, const OwnStage& own,
                                      const DataParallelOptions& options) {
  std::vector<NamedTensor> sparse;
  std::vector<NamedTensor> dense;
  if (own.stage.module) dense = dense_ones(parameters_of(own), *own.stage.module, sparse);
  return std::make_unique<Reducer>(group, std::move(dense), std::move(sparse), options);
}

void require_all_used(const OwnStage& own) {
  for (const auto& [name, parameter] : parameters_of(own)) {
    if (!parameter.requires_grad() || parameter.grad().defined()) continue;
    throw RuntimeError(fmt::format(
        "parameter '{}' got no gradient in this step; set DataParallelOptions::allow_unused if "
        "that may happen",
        name));
  }
}

}  // namespace

StageReplicas::StageReplicas(comm::Group* group, const std::vector<OwnStage>& stages,
                             const DataParallelOptions& options)
    : group_(group), stages_(stages), options_(options) {
  if (group_ == nullptr) return;
  std::vector<NamedTensor> state;
  for (const auto& own : stages_) {
    for (auto& parameter : parameters_of(own)) state.push_back(std::move(parameter));
    for (auto& buffer : buffers_of(own)) {
      buffers_.push_back(buffer);
      state.push_back(std::move(buffer));
    }
  }
  require_same_model(*group_, state);
  broadcast_from_leader(*group_, state);
  for (const auto& own : stages_) reducers_.push_back(make_reducer(*group_, own, options_));
}

StageReplicas::~StageReplicas() = default;

void StageReplicas::begin_step(int micro_batches) {
  if (group_ != nullptr && options_.broadcast_buffers) broadcast_from_leader(*group_, buffers_);
  for (auto& reducer : reducers_) reducer->begin_step(micro_batches);
  if (!reducers_.empty()) return;
  for (const auto& own : stages_) {
    for (auto& [name, tensor] : parameters_of(own)) tensor.mutable_grad().reset();
  }
}

bool StageReplicas::follows_graph() const noexcept {
  return !reducers_.empty() && options_.allow_unused;
}

void StageReplicas::begin_last_backward(std::size_t index, const torch::Tensor& output) {
  if (!reducers_.empty()) reducers_[index]->begin_backward(output, true);
}

// Hooks of a parameter may have run before its gradient was complete: in the first part of
// backward, for a weight that a layer uses whose backward is not split. So buckets are sent only
// now.
void StageReplicas::end_split_backward(std::size_t index) {
  if (reducers_.empty()) return;
  if (!options_.allow_unused) require_all_used(stages_[index]);
  reducers_[index]->pass_without_data(true);
}

void StageReplicas::finish() {
  for (auto& reducer : reducers_) reducer->finish();
}

}  // namespace ddp::pipeline
