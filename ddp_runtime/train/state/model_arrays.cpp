// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/model_arrays.h"

#include <algorithm>
#include <unordered_map>

#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"

namespace ddp::train {
namespace {

std::unordered_set<const c10::TensorImpl*> parameters_of(torch::optim::Optimizer& optimizer) {
  std::unordered_set<const c10::TensorImpl*> parameters;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& p : group.params()) parameters.insert(p.unsafeGetTensorImpl());
  }
  return parameters;
}

}  // namespace

ModelArrays::ModelArrays(torch::nn::Module& module,
                         const std::vector<torch::optim::Optimizer*>& optimizers,
                         const std::vector<DistributedDataParallel*>& replicas,
                         const UserState& user, const StageResidence* stages)
    : module_(module),
      optimizers_(optimizers),
      user_(user),
      divided_(replicas, optimizers, stages) {
  for (const auto& [name, tensor] : named_parameters(module_)) {
    parameters_.insert("model/" + name);
    const auto& parameter = tensor;
    if (divided_.has(parameter)) divided_names_.insert(name);
    if (std::any_of(replicas.begin(), replicas.end(),
                    [&](const auto* replica) { return replica->ignores(parameter); })) {
      ignored_.push_back(name);
    }
  }
  for (const auto& [name, tensor] : named_buffers(module_)) {
    if (divided_.has(tensor)) divided_names_.insert(name);
  }
}

bool ModelArrays::is_ignored(const std::string& array) const {
  return std::ranges::any_of(ignored_, [&](const std::string& parameter) {
    return array == "model/" + parameter || array.starts_with("optim/" + parameter + "/");
  });
}

bool ModelArrays::has_masters() const {
  if (divided_.keeps_masters()) return true;
  return std::ranges::any_of(
      optimizers_, [](auto* optimizer) { return optim::masters_of(*optimizer) != nullptr; });
}

// See Note [Masters in a checkpoint].
std::vector<NamedTensor> ModelArrays::whole_model() const {
  auto tensors = named_parameters(module_);
  for (auto* const optimizer : optimizers_) {
    auto* const kept = optim::masters_of(*optimizer);
    if (kept == nullptr) continue;
    const auto updated = parameters_of(*optimizer);
    for (auto& t : tensors) {
      if (updated.contains(t.tensor.unsafeGetTensorImpl())) t.tensor = kept->values_of(t.tensor);
    }
  }
  for (auto& buffer : named_buffers(module_)) tensors.push_back(std::move(buffer));
  for (auto& t : tensors) t.tensor = t.tensor.detach();
  return tensors;
}

std::vector<NamedTensor> ModelArrays::plain() const {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : whole_model()) {
    if (!divided_names_.contains(name)) tensors.push_back({"model/" + name, tensor});
  }
  for (const auto& [name, tensor] : user_.tensors()) tensors.push_back({"user/" + name, tensor});
  return tensors;
}

std::vector<StateArray> ModelArrays::divided() const {
  std::vector<StateArray> arrays;
  for (const auto& tensors : {named_parameters(module_), named_buffers(module_)}) {
    for (const auto& [name, tensor] : tensors) {
      if (divided_.has(tensor)) arrays.push_back(divided_.array_of("model/" + name, tensor));
    }
  }
  for (const auto& [name, rows, division] : user_.rows()) {
    arrays.push_back({"user/" + name, rows, division});
  }
  return arrays;
}

void ModelArrays::round_masters() const {
  for (auto* const optimizer : optimizers_) {
    auto* const kept = optim::masters_of(*optimizer);
    if (kept != nullptr) kept->round_into(module_.parameters());
  }
  divided_.round_masters();
}

// Replaces the weights whose masters are divided by float32 copies. Returns them by parameter.
std::vector<std::pair<torch::Tensor, torch::Tensor>> ModelArrays::copy_for_masters(
    std::vector<NamedTensor>& tensors) const {
  std::unordered_map<std::string, torch::Tensor> parameters;
  for (const auto& [name, tensor] : named_parameters(module_)) {
    if (divided_.has_master(tensor)) parameters.emplace(name, tensor);
  }
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;
  for (auto& [name, tensor] : tensors) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) continue;
    tensor = tensor.to(torch::kFloat32);
    copies.emplace_back(found->second, tensor);
  }
  return copies;
}

void ModelArrays::initialize(
    comm::Group& group,
    const std::function<void(const std::vector<NamedTensor>& tensors)>& fill) const {
  const torch::NoGradGuard no_grad;
  const auto whole = divided_.gather();
  auto tensors = whole_model();
  const auto copies = copy_for_masters(tensors);
  if (group.rank() == 0) fill(tensors);
  broadcast_from_leader(group, tensors);
  for (const auto& [parameter, values] : copies) parameter.detach().copy_(values);
  for (const auto& parameters : whole) parameters->keep_changes();
  for (const auto& [parameter, values] : copies) divided_.set_master(parameter, values);
  round_masters();
}

}  // namespace ddp::train
