// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/errors.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/train/state/array_views.h"
#include "ddp_runtime/train/state/divided_parameters.h"
#include "ddp_runtime/train/state/generator_state.h"
#include "ddp_runtime/train/state/optimizer_states.h"
#include "ddp_runtime/train/state/rank_state.h"
#include "ddp_runtime/train/state/read_target.h"
#include "hdf5_ckpt/convert/checkpoint_arrays.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {
namespace {

nlohmann::json value_or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::optional<double> value_in(const nlohmann::json& object, const char* name) {
  if (!object.contains(name) || object.at(name).is_null()) return std::nullopt;
  return object.at(name).get<double>();
}

std::string type_name(torch::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

std::string generator_name(int rank, torch::Device device) {
  return fmt::format("rng/rank-{}/{}", rank, type_name(device));
}

// Whether the array is the state of a generator of one of these devices, on any rank.
bool is_of(const std::vector<torch::Device>& devices, std::string_view array) {
  return std::any_of(devices.begin(), devices.end(), [&](const torch::Device& device) {
    return array.ends_with(fmt::format("/{}", type_name(device)));
  });
}

std::vector<torch::Device> generator_devices(const torch::nn::Module& module) {
  std::vector<torch::Device> devices{torch::Device(torch::kCPU)};
  const auto device = device_of(module);
  if (!device.is_cpu()) devices.push_back(device);
  return devices;
}

std::unordered_set<const c10::TensorImpl*> parameters_of(torch::optim::Optimizer& optimizer) {
  std::unordered_set<const c10::TensorImpl*> parameters;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& p : group.params()) parameters.insert(p.unsafeGetTensorImpl());
  }
  return parameters;
}

std::vector<std::int64_t> shape_of(const ckpt::StoredArray& array) {
  return {array.shape.begin(), array.shape.end()};
}

constexpr std::string_view kGenerators = "rng/";
constexpr std::string_view kOptimizer = "optim/";

// Bytes of an array that are in memory at a time while they are only verified.
constexpr std::uint64_t kPieceBytes = 4 << 20;

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

std::string order_name(std::size_t replica) {
  return replica == 0 ? "ddp/gradient_order" : fmt::format("ddp/gradient_order-{}", replica);
}

}  // namespace

void Position::begin_epoch(std::int64_t number) {
  epoch = number;
  consumed = 0;
  loss_sum = 0;
  loss_steps = 0;
}

nlohmann::json Position::to_json() const {
  return {{"epoch", epoch},
          {"consumed", consumed},
          {"step", step},
          {"loss_sum", loss_sum},
          {"loss_steps", loss_steps},
          {"first_batch", first_batch},
          {"best_loss", value_or_null(best.loss.cost)},
          {"epochs_since_best", best.loss.epochs_since},
          {"best_accuracy_cost", value_or_null(best.accuracy.cost)},
          {"epochs_since_best_accuracy", best.accuracy.epochs_since},
          {"loss_scale", loss_scale.scale},
          {"updates_since_scale_change", loss_scale.updates_since_change}};
}

// Old checkpoints do not have the best evaluations, the loss scale and the first batch.
Position Position::from_json(const nlohmann::json& json) {
  try {
    Position p;
    p.epoch = json.at("epoch").get<std::int64_t>();
    p.consumed = json.at("consumed").get<std::int64_t>();
    p.step = json.at("step").get<std::int64_t>();
    p.loss_sum = json.at("loss_sum").get<double>();
    p.loss_steps = json.at("loss_steps").get<std::int64_t>();
    p.first_batch = std::max<std::int64_t>(0, json.value("first_batch", std::int64_t{0}));
    p.best.loss = {value_in(json, "best_loss"), json.value("epochs_since_best", std::int64_t{0})};
    p.best.accuracy = {value_in(json, "best_accuracy_cost"),
                       json.value("epochs_since_best_accuracy", std::int64_t{0})};
    p.loss_scale.scale = json.value("loss_scale", 0.0F);
    p.loss_scale.updates_since_change = json.value("updates_since_scale_change", std::int64_t{0});
    return p;
  } catch (const nlohmann::json::exception& e) {
    throw UsageError(fmt::format(
        "the checkpoint has no training position ({}): it was not saved by a training run; "
        "choose another one for --resume",
        e.what()));
  }
}

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
      module_(module),
      replicas_(std::move(replicas)),
      user_(user),
      optimizers_(std::move(optimizers)),
      optimizer_state_(std::make_unique<OptimizerStates>(
          optimizers_, named_parameters(module_),
          stages == nullptr ? std::nullopt : std::optional<Resident>({group, *stages}))),
      divided_(std::make_unique<DividedParameters>(replicas_, optimizers_, stages)),
      loaded_orders_(std::max<std::size_t>(1, replicas_.size())),
      generators_(generator_devices(module)) {
  for (const auto& [name, tensor] : named_parameters(module_)) {
    parameters_.insert("model/" + name);
    const auto& parameter = tensor;
    if (divided_->has(parameter)) divided_names_.insert(name);
    if (std::any_of(replicas_.begin(), replicas_.end(),
                    [&](const auto* replica) { return replica->ignores(parameter); })) {
      ignored_.push_back(name);
    }
  }
  for (const auto& [name, tensor] : named_buffers(module_)) {
    if (divided_->has(tensor)) divided_names_.insert(name);
  }
}

TrainingState::~TrainingState() = default;

void TrainingState::replace_replica(DistributedDataParallel* replica) {
  if (replicas_.size() == 1) replicas_.front() = replica;
}

void TrainingState::load_only_weights() {
  only_weights_ = true;
  own_ = nullptr;
  generators_.clear();
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

bool TrainingState::takes_average() const {
  const auto is_average = [](const auto& array) {
    return ("user/" + array.name).starts_with(ckpt::kAverages);
  };
  return std::ranges::any_of(user_.tensors(), is_average) ||
         std::ranges::any_of(user_.rows(), is_average);
}

std::optional<double> TrainingState::average_left_in(const ckpt::Checkpoint& checkpoint) const {
  constexpr double kUsual = 0.999;  // any decay takes it
  if (takes_average() || !ckpt::has_average(checkpoint)) return std::nullopt;
  const auto& state = checkpoint.manifest().state;
  const auto decay = state.value(nlohmann::json::json_pointer("/run/ema"), nlohmann::json());
  return decay.is_number() ? decay.get<double>() : kUsual;
}

// What read_into() checks for a whole checkpoint.
void TrainingState::require_same_weights(const ckpt::Checkpoint& checkpoint) const {
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : plain_tensors()) known.insert(name);
  for (const auto& array : divided_tensors()) known.insert(array.name);
  for (const auto& array : checkpoint.arrays()) {
    if (!array.name.starts_with(ckpt::kModelPrefix) || known.contains(array.name)) continue;
    throw ckpt::MismatchError(
        fmt::format("checkpoint '{}' has '{}', and the model has not; build the same model as the "
                    "run that saved it",
                    checkpoint.path().string(), array.name));
  }
  if (!takes_average()) return;
  if (!ckpt::has_average(checkpoint)) {
    throw ckpt::MismatchError(
        fmt::format("checkpoint '{}' has no average of the weights: leave out --ema",
                    checkpoint.path().string()));
  }
  for (const auto& name : known) {
    if (!name.starts_with(ckpt::kAverages) || checkpoint.find(name) != nullptr) continue;
    const auto weight = name.substr(ckpt::kAverages.size());
    if (checkpoint.find(ckpt::kModelPrefix + weight) == nullptr) continue;
    throw ckpt::MismatchError(
        fmt::format("checkpoint '{}' has no average of '{}', which its run did not train: give the "
                    "--freeze of that run",
                    checkpoint.path().string(), weight));
  }
}

bool TrainingState::is_trained(const std::string& array) const {
  return array.starts_with(kOptimizer) || parameters_.contains(array);
}

bool TrainingState::is_replicated(const std::string& array) const {
  const auto belongs_to = [&](const std::string& parameter) {
    return array == "model/" + parameter ||
           array.starts_with(fmt::format("{}{}/", kOptimizer, parameter));
  };
  if (own_ != nullptr && array.starts_with(kOptimizer)) return false;
  return is_trained(array) && std::none_of(ignored_.begin(), ignored_.end(), belongs_to);
}

bool TrainingState::has_masters() const {
  if (divided_->keeps_masters()) return true;
  return std::any_of(optimizers_.begin(), optimizers_.end(),
                     [](auto* optimizer) { return optim::masters_of(*optimizer) != nullptr; });
}

// Replaces the weights that have masters by these.
void TrainingState::add_masters(std::vector<NamedTensor>& tensors) const {
  for (auto* const optimizer : optimizers_) {
    auto* const kept = optim::masters_of(*optimizer);
    if (kept == nullptr) continue;
    const auto updated = parameters_of(*optimizer);
    for (auto& t : tensors) {
      if (updated.contains(t.tensor.unsafeGetTensorImpl())) t.tensor = kept->values_of(t.tensor);
    }
  }
}

// See Note [Masters in a checkpoint].
std::vector<NamedTensor> TrainingState::model_tensors() const {
  auto tensors = named_parameters(module_);
  add_masters(tensors);
  for (auto& buffer : named_buffers(module_)) tensors.push_back(std::move(buffer));
  for (auto& t : tensors) t.tensor = t.tensor.detach();
  return tensors;
}

// The tensors that every rank has and that exist before a checkpoint is read, under their array
// names.
std::vector<NamedTensor> TrainingState::plain_tensors() const {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : model_tensors()) {
    if (!divided_names_.contains(name)) tensors.push_back({"model/" + name, tensor});
  }
  for (const auto& [name, tensor] : user_.tensors()) tensors.push_back({"user/" + name, tensor});
  return tensors;
}

// This rank's rows of the parameters that are divided, or of their masters, and of the user's
// arrays. They share their memory.
std::vector<StateArray> TrainingState::divided_tensors() const {
  std::vector<StateArray> arrays;
  for (const auto& tensors : {named_parameters(module_), named_buffers(module_)}) {
    for (const auto& [name, tensor] : tensors) {
      if (divided_->has(tensor)) arrays.push_back(divided_->array_of("model/" + name, tensor));
    }
  }
  for (const auto& [name, rows, division] : user_.rows()) {
    arrays.push_back({"user/" + name, rows, division});
  }
  return arrays;
}

void TrainingState::require_storable() const {
  optimizer_state_->require_known();
  auto tensors = plain_tensors();
  for (const auto& array : divided_tensors()) tensors.push_back({array.name, array.tensor});
  for (const auto& [name, tensor] : tensors) {
    if (stored_type(tensor.scalar_type())) continue;
    throw UsageError(
        fmt::format("'{}' is of type {}, which a checkpoint cannot hold; convert it, or train "
                    "without a checkpoint directory",
                    name, c10::toString(tensor.scalar_type())));
  }
}

bool TrainingState::is_divided() const {
  return optimizer_state_->any_divided() || divided_->any() || own_ != nullptr;
}

bool TrainingState::divides_gradients(std::size_t replica) const {
  return replica < replicas_.size() &&
         dynamic_cast<const ShardedDataParallel*>(replicas_[replica]) != nullptr;
}

std::vector<StateArray> TrainingState::collect() {
  // Any rank's copy may be the one saved.
  for (auto* const replica : replicas_) replica->require_same_parameters();
  std::vector<StateArray> arrays;
  for (const auto& [name, tensor] : plain_tensors()) arrays.push_back({name, tensor.contiguous()});
  for (auto& array : divided_tensors()) {
    arrays.push_back({array.name, array.tensor.contiguous(), std::move(array.division)});
  }
  if (own_ != nullptr) {
    for (auto& array : own_->arrays()) arrays.push_back(std::move(array));
  }
  for (auto& array : optimizer_state_->arrays()) {
    arrays.push_back(
        {array_name(array.name), array.tensor.contiguous(), std::move(array.division)});
  }
  for (const auto& device : generators_) {
    const auto mine = generator_state(device);
    auto all = torch::empty({group_.size(), mine.numel()}, torch::kUInt8);
    group_.all_gather(buffer_of(mine), buffer_of(all), "generator states").wait();
    for (int rank = 0; rank < group_.size(); ++rank) {
      arrays.push_back({generator_name(rank, device), all[rank]});
    }
  }
  for (std::size_t i = 0; i < loaded_orders_.size(); ++i) {
    auto order = i < replicas_.size() ? replicas_[i]->gradient_order() : loaded_orders_[i];
    // Shards have no buckets, but a later run without shards may have them.
    if (order.empty() && divides_gradients(i)) order = loaded_orders_[i];
    if (!order.empty()) arrays.push_back({order_name(i), torch::tensor(order, torch::kInt64)});
  }
  return arrays;
}

// The type in which an array is read: a checkpoint may hold weights and state in a short type of
// which this run keeps masters.
torch::ScalarType TrainingState::type_in(const ckpt::Checkpoint& checkpoint,
                                         const std::string& name,
                                         const torch::Tensor& tensor) const {
  const auto* const stored = checkpoint.find(name);
  const bool is_short = stored != nullptr && has_masters() && is_trained(name) &&
                        tensor.scalar_type() == torch::kFloat32;
  if (is_short && stored->dtype == ckpt::DType::bfloat16) return torch::kBFloat16;
  if (is_short && stored->dtype == ckpt::DType::float16) return torch::kHalf;
  return tensor.scalar_type();
}

void TrainingState::round_masters() {
  for (auto* const optimizer : optimizers_) {
    auto* const kept = optim::masters_of(*optimizer);
    if (kept != nullptr) kept->round_into(module_.parameters());
  }
  divided_->round_masters();
}

// Replaces the weights whose masters are divided by float32 copies. Returns them by parameter.
std::vector<std::pair<torch::Tensor, torch::Tensor>> TrainingState::copy_for_masters(
    std::vector<NamedTensor>& tensors) const {
  std::unordered_map<std::string, torch::Tensor> parameters;
  for (const auto& [name, tensor] : named_parameters(module_)) {
    if (divided_->has_master(tensor)) parameters.emplace(name, tensor);
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

void TrainingState::initialize(
    const std::function<void(const std::vector<NamedTensor>& tensors)>& fill) {
  const torch::NoGradGuard no_grad;
  const auto whole = divided_->gather();
  auto tensors = model_tensors();
  const auto copies = copy_for_masters(tensors);
  if (group_.rank() == 0) fill(tensors);
  broadcast_from_leader(group_, tensors);
  for (const auto& [parameter, values] : copies) parameter.detach().copy_(values);
  for (const auto& parameters : whole) parameters->keep_changes();
  for (const auto& [parameter, values] : copies) divided_->set_master(parameter, values);
  round_masters();
}

void TrainingState::load(const ckpt::Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  if (only_weights_) require_same_weights(checkpoint);
  std::vector<ReadTarget> targets;
  // Read beside the model, which stays as it is if the checkpoint turns out to be damaged.
  for (const auto& [name, tensor] : plain_tensors()) {
    const auto options = torch::TensorOptions(torch::kCPU).dtype(type_in(checkpoint, name, tensor));
    targets.push_back({{name, torch::empty(tensor.sizes(), options)}, tensor});
  }
  for (auto& array : divided_tensors()) {
    const auto type = type_in(checkpoint, array.name, array.tensor);
    targets.push_back(target_beside(std::move(array), type));
  }
  loaded_generators_.clear();
  for (const auto& device : generators_) {
    std::int64_t ranks = 0;
    while (checkpoint.find(generator_name(static_cast<int>(ranks), device)) != nullptr) ++ranks;
    const auto states = torch::zeros({ranks, generator_state(device).numel()}, torch::kUInt8);
    for (int rank = 0; rank < ranks; ++rank) {
      targets.push_back({{generator_name(rank, device), states[rank]}, {}});
    }
    loaded_generators_.push_back(states);
  }
  // Those of a device on which this run does not train. Nothing continues them.
  for (const auto& array : checkpoint.arrays()) {
    if (!array.name.starts_with(kGenerators) || is_of(generators_, array.name)) continue;
    if (only_weights_) continue;
    targets.push_back({{array.name, torch::empty(shape_of(array), torch::kUInt8)}, {}});
  }
  std::vector<torch::Tensor> orders;
  for (std::size_t i = 0; i < loaded_orders_.size(); ++i) {
    orders.push_back(torch::empty({0}, torch::kInt64));
    const auto* const stored = checkpoint.find(order_name(i));
    if (stored == nullptr) continue;
    orders.back() = torch::empty(shape_of(*stored), torch::kInt64);
    targets.push_back({{order_name(i), orders.back()}, {}});
  }
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
  if (only_weights_) average_left_ = average_left_in(checkpoint);
  read_into(targets, checkpoint, only_weights_ ? ckpt::Match::subset : ckpt::Match::exact);
  optimizer_state_->commit(whole);
  optimizer_state_->commit(rows);
  loaded_state_ = whole;
  round_masters();
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const auto* const first = orders[i].data_ptr<std::int64_t>();
    loaded_orders_[i].assign(first, first + orders[i].numel());
  }
}

// Verifies what is of no use here.
std::vector<StateArray> TrainingState::own_places(const ckpt::Checkpoint& checkpoint) {
  if (only_weights_) return {};
  auto places = places_of(own_, rank_arrays_in(checkpoint));
  for (const auto& array : places) {
    if (!has_no_rows(array)) continue;
    checkpoint.stream(array.name, kPieceBytes, {}, [](std::span<const std::byte>) {});
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
    checkpoint.stream(array_name(array.name), kPieceBytes, {}, [](std::span<const std::byte>) {});
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
  for (auto& array : divided_tensors()) {
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
  auto arrays = divided_tensors();
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

// Collective. `loaded` is rank 0's: [ranks of the checkpoint, bytes].
void TrainingState::restore_generator(torch::Device device, torch::Tensor loaded,
                                      std::uint64_t seed) {
  std::int64_t ranks = group_.rank() == 0 ? loaded.size(0) : 0;
  group_.broadcast(comm::buffer_of(ranks), 0, "generator count").wait();
  if (group_.rank() != 0) {
    loaded = torch::empty({ranks, generator_state(device).numel()}, torch::kUInt8);
  }
  group_.broadcast(buffer_of(loaded), 0, "generator states").wait();
  if (group_.rank() < ranks) {
    set_generator_state(device, loaded[group_.rank()].clone());
  } else {
    seed_generator(device, seed);
  }
}

void TrainingState::distribute(std::uint64_t seed) {
  broadcast_from_leader(group_, plain_tensors());
  round_masters();
  divided_->publish_masters();

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

  for (std::size_t i = 0; i < generators_.size(); ++i) {
    restore_generator(generators_[i], group_.rank() == 0 ? loaded_generators_[i] : torch::Tensor(),
                      seed);
  }
  loaded_generators_.clear();

  for (std::size_t i = 0; i < loaded_orders_.size(); ++i) {
    auto& order = loaded_orders_[i];
    auto length = static_cast<std::int64_t>(order.size());
    group_.broadcast(comm::buffer_of(length), 0, "length of the gradients' order").wait();
    order.resize(static_cast<std::size_t>(length));
    group_.broadcast(comm::buffer_of(std::span(order)), 0, "order of gradients").wait();
    if (i < replicas_.size()) replicas_[i]->expect_gradient_order(order);
  }
  // Ranks may have loaded rows of arrays that others have in common with them.
  group_.barrier("end of loading").wait();
}

}  // namespace ddp::train
