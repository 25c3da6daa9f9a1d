// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/cut.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/parallel/flat_memory.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/parallel/tensor_buffer.h"

namespace ddp {
namespace {

constexpr std::int64_t kStepsBetweenComparisons = 100;

template <class... Kinds>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Kinds*>(&optimizer) != nullptr) || ...);
}

// Those whose update of an element depends on nothing but that element, and that create their state
// in the first step.
void require_divisible(torch::optim::Optimizer& optimizer) {
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
  const auto* const keeper = dynamic_cast<const optim::KeepsMasters*>(&optimizer);
  if (keeper != nullptr && keeper->masters() != nullptr) {
    throw UsageError("ShardedOptimizer cannot divide an optimizer that keeps float32 masters yet");
  }
}

void require_dense(const torch::Tensor& parameter, std::size_t number) {
  if (parameter.layout() == torch::kStrided && parameter.is_non_overlapping_and_dense() &&
      can_be_communicated(parameter.scalar_type())) {
    return;
  }
  throw UsageError(
      fmt::format("parameter {} of the optimizer, of shape [{}], cannot be divided by "
                  "ShardedOptimizer: it must be a dense tensor of real numbers without gaps",
                  number + 1, fmt::join(parameter.sizes(), ", ")));
}

// A tensor whose rows are not contiguous, such as a transposed one, is one row.
ArraySize size_of(const torch::Tensor& parameter, int key) {
  const std::int64_t elements = parameter.numel();
  if (elements == 0) return {0, 1, key};
  if (parameter.dim() > 0 && parameter.stride(0) == elements / parameter.size(0)) {
    return {parameter.size(0), parameter.stride(0), key};
  }
  return {1, elements, key};
}

bool same_places(const torch::Tensor& a, const torch::Tensor& b) {
  return a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

// The first rank that says something else than rank 0, if there is one.
std::optional<std::ptrdiff_t> other_than_first(const std::vector<std::string>& texts) {
  const auto other = std::ranges::find_if(texts, [&](const auto& t) { return t != texts.front(); });
  if (other == texts.end()) return std::nullopt;
  return other - texts.begin();
}

}  // namespace

// While it lives, the parts have their gradients.
class ShardedOptimizer::LentGradients {
 public:
  explicit LentGradients(ShardedOptimizer& optimizer) : optimizer_(optimizer) {
    for (auto& part : optimizer_.parts_) {
      part.values.mutable_grad() = optimizer_.gradient_of(part);
    }
  }
  LentGradients(const LentGradients&) = delete;
  LentGradients& operator=(const LentGradients&) = delete;
  ~LentGradients() {
    for (auto& part : optimizer_.parts_) part.values.mutable_grad().reset();
  }

 private:
  ShardedOptimizer& optimizer_;
};

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                   comm::Group& group)
    : Optimizer(optimizer->param_groups(), optimizer->defaults().clone()),
      optimizer_(std::move(optimizer)),
      group_(group) {
  require_divisible(*optimizer_);
  // The constructor of libtorch takes an option that equals its class's default for one that was
  // not given, and replaces it by that of the first argument.
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    param_groups_[i].set_options(optimizer_->param_groups()[i].options().clone());
  }
  list_arrays();
  require_same_list();
  plan_ = plan_shards(sizes_, group_.size());
  const torch::NoGradGuard no_grad;
  move_to_flat_memory();
  give_parts_to_the_optimizer();
}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::list_arrays() {
  std::map<std::tuple<torch::ScalarType, torch::DeviceType, int>, int> keys;
  optim::MemoryRanges memory;
  for (const auto& group : param_groups_) {
    for (const auto& parameter : group.params()) {
      require_dense(parameter, arrays_.size());
      const auto device = parameter.device();
      const auto key =
          keys.try_emplace({parameter.scalar_type(), device.type(), device.index()}, keys.size())
              .first->second;
      arrays_.push_back({parameter, nullptr});
      sizes_.push_back(size_of(parameter, key));
      memory.add_written(parameter);
    }
  }
  // Each would get memory of its own.
  if (memory.overlap()) {
    throw UsageError(
        "parameters of the optimizer share memory, which ShardedOptimizer would divide; use one "
        "tensor in all places, or the optimizer without shards");
  }
}

// The order of the parameters decides where each one is in memory.
void ShardedOptimizer::require_same_list() const {
  std::vector<NamedTensor> named;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (const auto& parameter : param_groups_[g].params()) {
      named.push_back({fmt::format("{}/{}", g, named.size()), parameter});
    }
  }
  const auto other =
      other_than_first(group_.all_gather_text(std::to_string(fingerprint_of(named))));
  if (!other) return;
  throw RuntimeError(fmt::format(
      "the optimizers of ranks 0 and {} have different parameters, or in another order, which a "
      "ShardedOptimizer cannot divide; make the parameter groups alike on all ranks",
      *other));
}

// Gradients and everything else that knows the parameters as tensors stay with them.
void ShardedOptimizer::move_to_flat_memory() {
  for (const auto& flat : plan_.flats) {
    const auto options = arrays_[flat.arrays.front()].parameter.options().requires_grad(false);
    const auto bytes = static_cast<std::size_t>(flat.elements) * options.dtype().itemsize();
    auto& mine = flats_.emplace_back();
    mine.memory = group_.allocate(bytes);
    mine.values = tensor_on(mine.memory, flat.elements, options);
    for (std::size_t rank = 0; rank + 1 < flat.starts.size(); ++rank) {
      mine.sizes.push_back(static_cast<std::size_t>(flat.starts[rank + 1] - flat.starts[rank]));
    }
    for (std::size_t i = 0; i < flat.arrays.size(); ++i) {
      auto& array = arrays_[flat.arrays[i]];
      const auto copy =
          window(mine.values, flat.offsets[i], array.parameter.sizes(), array.parameter.strides());
      copy.copy_(array.parameter);
      array.parameter.set_data(copy);
      array.memory = array.parameter.data_ptr();
    }
  }
}

void ShardedOptimizer::give_parts_to_the_optimizer() {
  for (const auto& rows : rows_of(plan_, sizes_, group_.rank())) {
    auto values = vector_of(arrays_[rows.array].parameter, rows);
    parts_.push_back({rows, values.requires_grad_(true)});
  }
  std::size_t first = 0;  // array of the group
  for (auto& group : optimizer_->param_groups()) {
    const std::size_t end = first + group.params().size();
    std::vector<torch::Tensor> mine;
    for (const auto& part : parts_) {
      if (part.rows.array >= first && part.rows.array < end) mine.push_back(part.values);
    }
    group.params() = std::move(mine);
    first = end;
  }
}

std::optional<std::size_t> ShardedOptimizer::find_array(const torch::Tensor& parameter) const {
  const auto found = std::ranges::find_if(
      arrays_, [&](const Array& array) { return array.parameter.is_same(parameter); });
  if (found == arrays_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - arrays_.begin());
}

const ShardedOptimizer::Part* ShardedOptimizer::find_part(const torch::Tensor& parameter) const {
  const auto array = find_array(parameter);
  const auto found =
      std::ranges::find_if(parts_, [&](const Part& part) { return part.rows.array == array; });
  return found == parts_.end() ? nullptr : &*found;
}

// The rows of a tensor that has the sizes and strides of their parameter.
torch::Tensor ShardedOptimizer::vector_of(const torch::Tensor& whole, const RowRange& rows) const {
  const std::int64_t width = sizes_[rows.array].row_elements;
  return window(whole.detach(), rows.first * width, {rows.count * width}, {1});
}

torch::Tensor ShardedOptimizer::part_of(const torch::Tensor& parameter) const {
  const auto* const part = find_part(parameter);
  return part == nullptr ? torch::Tensor() : part->values;
}

torch::Tensor ShardedOptimizer::rows_in(const torch::Tensor& whole,
                                        const torch::Tensor& parameter) const {
  return vector_of(whole, find_part(parameter)->rows);
}

void ShardedOptimizer::exchange_rows(const torch::Tensor& whole,
                                     const torch::Tensor& parameter) const {
  const auto array = find_array(parameter);
  if (!array || group_.size() == 1 || whole.numel() == 0) return;
  comm::Cut cut{sizes_by_rank(plan_, sizes_, *array)};
  const auto vector = window(whole.detach(), 0, {whole.numel()}, {1});
  group_.all_gather(buffer_of(vector), std::move(cut), "state of a ShardedOptimizer").wait();
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
  {
    const LentGradients lent(*this);
    optimizer_->step();
  }
  exchange();
  return loss;
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
    const auto& parameter = arrays_[i].parameter;
    if (parameter.data_ptr() != arrays_[i].memory) {
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
  for (const auto& array : arrays_) mine += array.parameter.grad().defined() ? '1' : '0';
  const auto other = other_than_first(group_.all_gather_text(mine));
  if (!other) return;
  throw RuntimeError(fmt::format(
      "ranks 0 and {} give a ShardedOptimizer different learning rates, or gradients of different "
      "parameters, in step {}; all ranks must make the same update",
      *other, steps_));
}

void ShardedOptimizer::take_options() {
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    optimizer_->param_groups()[i].set_options(param_groups_[i].options().clone());
  }
}

// Of the same elements as the part, without a copy if the memory of the gradient has the order of
// the parameter's.
torch::Tensor ShardedOptimizer::gradient_of(const Part& part) const {
  const auto& parameter = arrays_[part.rows.array].parameter;
  auto gradient = parameter.grad();
  if (!gradient.defined()) return {};
  if (!same_places(gradient, parameter)) {
    gradient = torch::empty_strided(parameter.sizes(), parameter.strides(), gradient.options())
                   .copy_(gradient);
  }
  return vector_of(gradient, part.rows);
}

void ShardedOptimizer::exchange() {
  std::vector<comm::Work> works;
  if (group_.size() > 1) {
    for (const auto& flat : flats_) {
      works.push_back(group_.all_gather(buffer_of(flat.values), comm::Cut{flat.sizes},
                                        "updated parameters", flat.memory));
    }
  }
  for (auto& work : works) work.wait();
  // Autograd knows by this number that a value which backward needs has changed.
  for (const auto& array : arrays_) {
    if (array.parameter.grad().defined()) array.parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace ddp
