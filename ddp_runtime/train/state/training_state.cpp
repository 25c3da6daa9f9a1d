// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>

#include "base/errors.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/train/state/array_views.h"
#include "ddp_runtime/train/state/generators.h"
#include "ddp_runtime/train/state/gradient_orders.h"
#include "ddp_runtime/train/state/model_arrays.h"
#include "ddp_runtime/train/state/only_weights.h"
#include "ddp_runtime/train/state/optimizer_states.h"
#include "ddp_runtime/train/state/rank_state.h"
#include "ddp_runtime/train/state/read_target.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {
namespace {

constexpr std::string_view kOptimizer = "optim/";

// Bytes of an array that are in memory at a time while they are only verified.
constexpr std::uint64_t kVerifiedBytes = 4 << 20;

std::string array_name(const std::string& state) {
  return std::string(kOptimizer) + state;
}

bool has_no_rows(const StateArray& array) {
  return array.division && std::ranges::all_of(array.division->elements,
                                               [](std::size_t elements) { return elements == 0; });
}

// Of the whole array, in host memory.
torch::Tensor rows_of(const torch::Tensor& whole, const StateArray& array) {
  if (!array.division || whole.dim() == 0) return whole;
  return whole.narrow(0, array.division->first, array.tensor.size(0));
}

}  // namespace

TrainingState::TrainingState(comm::Group& group, torch::nn::Module& module,
                             torch::optim::Optimizer& optimizer, DistributedDataParallel* replica,
                             const UserState& user, RankState* own, const StageResidence* stages)
    : TrainingState(group, module, std::vector<torch::optim::Optimizer*>{&optimizer},
                    replica == nullptr ? std::vector<DistributedDataParallel*>{}
                                       : std::vector<DistributedDataParallel*>{replica},
                    user, stages) {
  own_ = own;
}

TrainingState::TrainingState(comm::Group& group, torch::nn::Module& module,
                             std::vector<torch::optim::Optimizer*> optimizers,
                             std::vector<DistributedDataParallel*> replicas, const UserState& user,
                             const StageResidence* stages)
    : group_(group),
      replicas_(std::move(replicas)),
      optimizers_(std::move(optimizers)),
      model_(std::make_unique<ModelArrays>(module, optimizers_, replicas_, user, stages)),
      optimizer_state_(std::make_unique<OptimizerStates>(
          optimizers_, named_parameters(module),
          stages == nullptr ? std::nullopt : std::optional<Resident>({group, *stages}))),
      generators_(std::make_unique<Generators>(group, module)),
      orders_(std::make_unique<GradientOrders>(replicas_)) {}

TrainingState::~TrainingState() = default;

void TrainingState::replace_replica(DistributedDataParallel* replica) {
  if (replicas_.size() == 1) replicas_.front() = replica;
}

const UserState& TrainingState::user() const noexcept {
  return model_->user();
}

void TrainingState::load_only_weights() {
  only_weights_ = true;
  own_ = nullptr;
  generators_->leave_alone();
}

// By the names of OptimizerStates.
std::vector<std::string> TrainingState::optimizer_names(const ckpt::Checkpoint& checkpoint) const {
  std::vector<std::string> names;
  if (only_weights_) return names;
  for (const auto& array : checkpoint.arrays()) {
    if (array.name.starts_with(kOptimizer)) names.push_back(array.name.substr(kOptimizer.size()));
  }
  return names;
}

bool TrainingState::is_trained(const std::string& array) const {
  return array.starts_with(kOptimizer) || model_->is_parameter(array);
}

bool TrainingState::is_replicated(const std::string& array) const {
  if (own_ != nullptr && array.starts_with(kOptimizer)) return false;
  return is_trained(array) && !model_->is_ignored(array);
}

void TrainingState::require_storable() const {
  optimizer_state_->require_known();
  auto tensors = model_->plain();
  for (const auto& array : model_->divided()) tensors.push_back({array.name, array.tensor});
  for (const auto& [name, tensor] : tensors) {
    if (stored_type(tensor.scalar_type())) continue;
    throw UsageError(
        fmt::format("'{}' is of type {}, which a checkpoint cannot hold; convert it, or train "
                    "without a checkpoint directory",
                    name, c10::toString(tensor.scalar_type())));
  }
}

bool TrainingState::is_divided() const {
  return optimizer_state_->any_divided() || model_->any_divided() || own_ != nullptr;
}

std::vector<StateArray> TrainingState::collect() {
  // Any rank's copy may be the one saved.
  for (auto* const replica : replicas_) replica->require_same_parameters();
  std::vector<StateArray> arrays;
  for (const auto& [name, tensor] : model_->plain()) arrays.push_back({name, tensor.contiguous()});
  for (auto& array : model_->divided()) {
    arrays.push_back({array.name, array.tensor.contiguous(), std::move(array.division)});
  }
  if (own_ != nullptr) {
    for (auto& array : own_->arrays()) arrays.push_back(std::move(array));
  }
  for (auto& array : optimizer_state_->arrays()) {
    arrays.push_back(
        {array_name(array.name), array.tensor.contiguous(), std::move(array.division)});
  }
  generators_->collect(arrays);
  orders_->collect(arrays);
  return arrays;
}

// The type in which an array is read: a checkpoint may hold weights and state in a short type of
// which this run keeps masters.
torch::ScalarType TrainingState::type_in(const ckpt::Checkpoint& checkpoint,
                                         const std::string& name,
                                         const torch::Tensor& tensor) const {
  const auto* const stored = checkpoint.find(name);
  const bool is_short = stored != nullptr && model_->has_masters() && is_trained(name) &&
                        tensor.scalar_type() == torch::kFloat32;
  if (is_short && stored->dtype == ckpt::DType::bfloat16) return torch::kBFloat16;
  if (is_short && stored->dtype == ckpt::DType::float16) return torch::kHalf;
  return tensor.scalar_type();
}

void TrainingState::initialize(
    const std::function<void(const std::vector<NamedTensor>& tensors)>& fill) {
  model_->initialize(group_, fill);
}

void TrainingState::load(const ckpt::Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  if (only_weights_) require_same_weights(checkpoint, *model_);
  std::vector<ReadTarget> targets;
  // Read beside the model, which stays as it is if the checkpoint turns out to be damaged.
  for (const auto& [name, tensor] : model_->plain()) {
    const auto options = torch::TensorOptions(torch::kCPU).dtype(type_in(checkpoint, name, tensor));
    targets.push_back({{name, torch::empty(tensor.sizes(), options)}, tensor});
  }
  for (auto& array : model_->divided()) {
    const auto type = type_in(checkpoint, array.name, array.tensor);
    targets.push_back(target_beside(std::move(array), type));
  }
  generators_->add_targets(checkpoint, targets);
  orders_->add_targets(checkpoint, targets);
  const auto whole = optimizer_state_->allocate(optimizer_names(checkpoint), Held::whole);
  const auto rows = divided_state_for(checkpoint);
  for (const auto* const arrays : {&whole, &rows}) {
    for (auto array : *arrays) {
      array.name = array_name(array.name);
      const auto type = type_in(checkpoint, array.name, array.tensor);
      targets.push_back(host_target(std::move(array), type));
    }
  }
  verify_unused(checkpoint, rows);
  const auto own = own_places(checkpoint);
  for (const auto& array : own) targets.push_back({array});
  if (only_weights_) average_left_ = average_left_in(checkpoint, model_->user());
  read_into(targets, checkpoint, only_weights_ ? ckpt::Match::subset : ckpt::Match::exact);
  optimizer_state_->commit(whole);
  optimizer_state_->commit(rows);
  loaded_state_ = whole;
  model_->round_masters();
  orders_->take_loaded();
}

// Verifies what is of no use here.
std::vector<StateArray> TrainingState::own_places(const ckpt::Checkpoint& checkpoint) {
  if (only_weights_) return {};
  auto places = places_of(own_, rank_arrays_in(checkpoint));
  for (const auto& array : places) {
    if (!has_no_rows(array)) continue;
    checkpoint.stream(array.name, kVerifiedBytes, {}, [](std::span<const std::byte>) {});
  }
  return places;
}

std::vector<StateArray> TrainingState::divided_state_for(const ckpt::Checkpoint& checkpoint) {
  return optimizer_state_->allocate(optimizer_names(checkpoint), Held::divided);
}

// State of parameters that the optimizer does not have any more.
void TrainingState::verify_unused(const ckpt::Checkpoint& checkpoint,
                                  const std::vector<StateArray>& rows) const {
  for (const auto& array : rows) {
    if (!has_no_rows(array)) continue;
    checkpoint.stream(array_name(array.name), kVerifiedBytes, {},
                      [](std::span<const std::byte>) {});
  }
}

void TrainingState::load_rows(const ckpt::Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  const auto rows = divided_state_for(checkpoint);
  std::vector<ReadTarget> targets;
  for (auto array : rows) {
    array.name = array_name(array.name);
    const auto type = type_in(checkpoint, array.name, array.tensor);
    targets.push_back(host_target(std::move(array), type));
  }
  for (auto& array : model_->divided()) {
    const auto type = type_in(checkpoint, array.name, array.tensor);
    targets.push_back(target_beside(std::move(array), type));
  }
  for (auto& array : places_of(own_, rank_arrays_in(checkpoint))) {
    if (!has_no_rows(array)) targets.push_back({std::move(array)});
  }
  read_into(targets, checkpoint, ckpt::Match::subset);
  optimizer_state_->commit(rows);
}

void TrainingState::send_rows(const ckpt::Checkpoint* checkpoint) {
  const torch::NoGradGuard no_grad;
  auto names = nlohmann::json::array();
  if (checkpoint != nullptr) names = optimizer_names(*checkpoint);
  names = nlohmann::json::parse(group_.broadcast_text(names.dump(), 0));
  const auto rows =
      optimizer_state_->allocate(names.get<std::vector<std::string>>(), Held::divided);
  auto arrays = model_->divided();
  for (const auto& array : rows) {
    arrays.push_back({array_name(array.name), array.tensor, array.division});
  }
  for (auto& array : own_places_from_leader(group_, own_, checkpoint)) {
    arrays.push_back(std::move(array));
  }
  for (const auto& array : arrays) {
    auto whole = torch::empty(array.sizes(), array.tensor.options().device(torch::kCPU));
    std::exception_ptr failure;
    if (checkpoint != nullptr) {
      try {
        const auto type = type_in(*checkpoint, array.name, whole);
        read_into({host_target({array.name, whole}, type)}, *checkpoint, ckpt::Match::subset);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (!group_.broadcast_text(failure ? "failed" : "", 0).empty()) {
      if (failure) std::rethrow_exception(failure);
      return;
    }
    const std::vector<NamedTensor> sent{{array.name, whole}};
    broadcast_from_leader(group_, sent);
    array.tensor.copy_(rows_of(whole, array));
  }
  optimizer_state_->commit(rows);
}

void TrainingState::distribute(std::uint64_t seed) {
  broadcast_from_leader(group_, model_->plain());
  model_->round_masters();
  model_->publish_masters();

  nlohmann::json names = nlohmann::json::array();
  auto optimizer_tensors = std::move(loaded_state_);
  loaded_state_.clear();
  for (const auto& t : optimizer_tensors) names.push_back(t.name);
  names = nlohmann::json::parse(group_.broadcast_text(names.dump(), 0));
  if (group_.rank() != 0) {
    optimizer_tensors =
        optimizer_state_->allocate(names.get<std::vector<std::string>>(), Held::whole);
  }
  std::vector<NamedTensor> sent;
  for (const auto& array : optimizer_tensors) sent.push_back({array.name, array.tensor});
  broadcast_from_leader(group_, sent);
  if (group_.rank() != 0) optimizer_state_->commit(optimizer_tensors);

  generators_->distribute(seed);
  orders_->distribute(group_);
  // Ranks may have loaded rows of arrays that others have in common with them.
  group_.barrier("end of loading").wait();
}

}  // namespace ddp::train
