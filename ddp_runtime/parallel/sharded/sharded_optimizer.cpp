// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/sharded/memory/optimizer_shards.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"

namespace ddp {
namespace {

constexpr std::int64_t kStepsBetweenComparisons = 100;

template <class... Kinds>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Kinds*>(&optimizer) != nullptr) || ...);
}

// Those whose update of an element depends on nothing but that element, and that create their state
// in the first step.
void require_divisible_optimizer(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (!is_one_of<SGD, Adam, AdamW, RMSprop>(optimizer)) {
    throw UsageError(
        "ShardedOptimizer divides SGD, Adam, AdamW and RMSprop, and classes derived from them; use "
        "one of these, or the optimizer without shards");
  }
  if (!optimizer.state().empty()) {
    throw UsageError(
        "the optimizer for ShardedOptimizer has made steps already; give it a new one, before the "
        "first step");
  }
}

std::int64_t version_of(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor._version());
}

}  // namespace

// While it lives, the parts have their gradients.
class ShardedOptimizer::LentGradients {
 public:
  explicit LentGradients(ShardedOptimizer& optimizer) : optimizer_(optimizer) {
    for (const auto& array : optimizer_.arrays_) {
      if (array.part == nullptr) continue;
      auto values = array.part->values;
      values.mutable_grad() = optimizer_.shards_->gradient_of(array.place.flat, *array.part);
    }
  }
  LentGradients(const LentGradients&) = delete;
  LentGradients& operator=(const LentGradients&) = delete;
  ~LentGradients() {
    for (const auto& array : optimizer_.arrays_) {
      if (array.part == nullptr) continue;
      auto values = array.part->values;
      values.mutable_grad().reset();
    }
  }

 private:
  ShardedOptimizer& optimizer_;
};

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                   comm::Group& group)
    : ShardedOptimizer(std::move(optimizer)) {
  own_ = std::make_unique<OptimizerShards>(group, *this);
  shards_ = own_.get();
  list_arrays();
  give_parts_to_the_optimizer();
}

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                   ShardedDataParallel& replica)
    : ShardedOptimizer(std::move(optimizer)) {
  shards_ = &replica.shards();
  list_arrays();
  give_parts_to_the_optimizer();
}

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer)
    : Optimizer(optimizer->param_groups(), optimizer->defaults().clone()),
      optimizer_(std::move(optimizer)) {
  require_divisible_optimizer(*optimizer_);
  // The constructor of libtorch takes an option that equals its class's default for one that was
  // not given, and replaces it by that of the first argument.
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    param_groups_[i].set_options(optimizer_->param_groups()[i].options().clone());
  }
}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::list_arrays() {
  const auto& flats = shards_->flats();
  for (const auto& group : param_groups_) {
    for (const auto& parameter : group.params()) {
      const auto place = find_place(flats, parameter);
      if (!place) {
        throw UsageError(fmt::format(
            "parameter {} of the optimizer, of shape [{}], is not one of the ShardedDataParallel "
            "for which the ShardedOptimizer is made",
            arrays_.size() + 1, fmt::join(parameter.sizes(), ", ")));
      }
      const auto& parts = flats[place->flat]->parts();
      const auto part = std::ranges::find_if(
          parts, [&](const auto& candidate) { return candidate.rows.array == place->array; });
      arrays_.push_back(
          {parameter, *place, part == parts.end() ? nullptr : &*part, version_of(parameter)});
    }
  }
}

void ShardedOptimizer::give_parts_to_the_optimizer() {
  std::size_t array = 0;
  for (auto& group : optimizer_->param_groups()) {
    std::vector<torch::Tensor> mine;
    for (const std::size_t end = array + group.params().size(); array < end; ++array) {
      if (arrays_[array].part != nullptr) mine.push_back(arrays_[array].part->values);
    }
    group.params() = std::move(mine);
  }
}

const ShardedOptimizer::Array* ShardedOptimizer::find_array(const torch::Tensor& parameter) const {
  const auto found = std::ranges::find_if(
      arrays_, [&](const Array& array) { return array.parameter.is_same(parameter); });
  return found == arrays_.end() ? nullptr : &*found;
}

torch::Tensor ShardedOptimizer::part_of(const torch::Tensor& parameter) const {
  const auto* const array = find_array(parameter);
  return array == nullptr || array->part == nullptr ? torch::Tensor() : array->part->values;
}

optim::MasterWeights* ShardedOptimizer::masters() const {
  return optim::masters_of(*optimizer_);
}

bool ShardedOptimizer::has_master(const torch::Tensor& parameter) const {
  if (masters() == nullptr || !optim::MasterWeights::are_for(parameter)) return false;
  // A frozen parameter that is whole is not exchanged, so it must not be read by rows either.
  const auto* const array = find_array(parameter);
  return array != nullptr &&
         (parameter.requires_grad() || shards_->flats()[array->place.flat]->is_divided());
}

torch::Tensor ShardedOptimizer::values_of(const torch::Tensor& parameter) const {
  const auto* const array = find_array(parameter);
  if (array == nullptr || array->part == nullptr) return {};
  if (masters() == nullptr) return array->part->values;
  show_change(*array);
  return masters()->values_of(array->part->values);
}

void ShardedOptimizer::round_masters() const {
  if (masters() == nullptr) return;
  std::vector<torch::Tensor> parts;
  for (const auto& array : arrays_) {
    if (array.part != nullptr) parts.push_back(array.part->values);
  }
  masters()->round_into(parts);
}

// Writes to a parameter give it a new version, but not its part, by whose version a master finds
// out that it must take them: see Note [Master weights].
void ShardedOptimizer::show_change(const Array& array) {
  if (array.part == nullptr || version_of(array.parameter) == array.version) return;
  array.part->values.unsafeGetTensorImpl()->bump_version();
}

ArrayDivision ShardedOptimizer::division_of(const torch::Tensor& parameter) const {
  const auto* const array = find_array(parameter);
  if (array != nullptr) return ddp::division_of(*shards_, array->place);
  return {std::vector<std::size_t>(static_cast<std::size_t>(group().size())), 0};
}

torch::Tensor ShardedOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  require_usable();
  if (steps_++ % kStepsBetweenComparisons == 0) require_same_update();
  take_options();
  for (const auto& array : arrays_) show_change(array);
  if (next_flag_.defined()) {
    skips_of_shard().skip_next_step_if(std::exchange(next_flag_, torch::Tensor()));
  }
  shards_->begin_update();
  {
    const LentGradients lent(*this);
    optimizer_->step();
  }
  // Autograd knows by this number that a value which backward needs has changed.
  for (auto& array : arrays_) {
    if (shards_->has_gradient(array.place)) array.parameter.unsafeGetTensorImpl()->bump_version();
    array.version = version_of(array.parameter);
  }
  shards_->publish();
  return loss;
}

optim::SkipsSteps& ShardedOptimizer::skips_of_shard() const {
  auto* const skips = optim::abilities_of(*optimizer_).skips;
  if (skips != nullptr) return *skips;
  throw UsageError(
      "the optimizer that a ShardedOptimizer divides does not take the flags of skipped steps; use "
      "SGD, Adam or AdamW of ddp::optim");
}

void ShardedOptimizer::settle_step(bool skipped) {
  skips_of_shard().settle_step(skipped);
}

std::vector<torch::Tensor> ShardedOptimizer::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (std::size_t flat = 0; flat < shards_->flats().size(); ++flat) {
    for (const auto& part : shards_->flats()[flat]->parts()) {
      auto gradient = shards_->gradient_of(flat, part);
      if (gradient.defined()) gradients.push_back(std::move(gradient));
    }
  }
  return gradients;
}

// The norms are those of the parts, so the sum has the bits of one process only up to rounding.
void ShardedOptimizer::clip_gradients(double max_norm) {
  const torch::NoGradGuard no_grad;
  const auto parts = gradients();
  std::vector<torch::Tensor> norms;
  for (const auto& gradient : parts) norms.push_back(gradient.norm(2, torch::kFloat64));
  // Added up on the host, which waits for a device once.
  double squares = 0;
  if (!norms.empty()) {
    const auto on_host = torch::stack(norms).cpu();
    for (std::int64_t i = 0; i < on_host.numel(); ++i) {
      squares += std::pow(on_host[i].item<double>(), 2);
    }
  }
  const double norm =
      std::sqrt(shards_->groups().sharing.all_reduce_value(squares, comm::ReduceOp::sum));
  // As in clip_grad_norm_.
  const double factor = std::isfinite(norm) ? std::min(max_norm / (norm + 1e-6), 1.0)
                                            : std::numeric_limits<double>::quiet_NaN();
  for (const auto& gradient : parts) gradient.mul_(factor);
}

void ShardedOptimizer::save(torch::serialize::OutputArchive& /*archive*/) const {
  throw UsageError(
      "torch::save() cannot save a ShardedOptimizer, of which each rank has a part; use "
      "ddp::train::TrainingState and Checkpointer");
}

void ShardedOptimizer::load(torch::serialize::InputArchive& /*archive*/) {
  throw UsageError(
      "torch::load() cannot load a ShardedOptimizer, of which each rank has a part; use "
      "ddp::train::TrainingState and Checkpointer");
}

// The same on all ranks, because it looks at all parameters.
void ShardedOptimizer::require_usable() const {
  std::size_t listed = 0;
  for (const auto& group : param_groups_) listed += group.params().size();
  if (listed != arrays_.size() || param_groups_.size() != optimizer_->param_groups().size()) {
    throw UsageError(
        "parameters were added to a ShardedOptimizer, or removed; make it after the optimizer has "
        "all of them");
  }
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const auto& [parameter, place, part, version] = arrays_[i];
    if (!shards_->flats()[place.flat]->owns(place.array)) {
      throw RuntimeError(fmt::format(
          "the memory of parameter {} of a ShardedOptimizer, of shape [{}], was replaced, as by "
          "Module::to(), set_data() or torch::load(); do that before",
          i + 1, fmt::join(parameter.sizes(), ", ")));
    }
    if (parameter.grad().defined() && parameter.grad().layout() != torch::kStrided) {
      throw UsageError(fmt::format(
          "parameter {} of a ShardedOptimizer, of shape [{}], has a sparse gradient; shards need "
          "dense ones",
          i + 1, fmt::join(parameter.sizes(), ", ")));
    }
  }
}

// After the exchange the parameters are the same on all ranks, whatever each has computed. So what
// they compute with is compared, as often as DistributedDataParallel compares parameters.
void ShardedOptimizer::require_same_update() const {
  std::string mine;
  for (const auto& group : param_groups_) mine += fmt::format("{} ", group.options().get_lr());
  for (const auto& array : arrays_) mine += shards_->has_gradient(array.place) ? '1' : '0';
  const auto texts = group().all_gather_text(mine);
  const auto other = std::ranges::find_if(texts, [&](const auto& t) { return t != texts.front(); });
  if (other == texts.end()) return;
  throw RuntimeError(fmt::format(
      "ranks 0 and {} give a ShardedOptimizer different learning rates, or gradients of different "
      "parameters, in step {}; all ranks must make the same update",
      other - texts.begin(), steps_));
}

void ShardedOptimizer::take_options() {
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    optimizer_->param_groups()[i].set_options(param_groups_[i].options().clone());
  }
}

}  // namespace ddp
