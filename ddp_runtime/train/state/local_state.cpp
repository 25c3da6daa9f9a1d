// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/local_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/parallel/replica/same_parameters.h"

namespace ddp::train {
namespace {

constexpr std::string_view kModel = "local/rank/model/";
constexpr std::string_view kState = "local/rank/optim/";
constexpr std::string_view kScale = "local/rank/loss_scale";
constexpr std::string_view kStart = "local/start/";
constexpr std::string_view kVelocity = "local/velocity/";

std::string named(std::string_view prefix, const std::string& name) {
  return std::string(prefix) + name;
}

bool is_row(const SavedArray& array) {
  return array.name.starts_with(kOwnRows) && !array.sizes.empty();
}

// A copy would otherwise spread what fits into a larger shape.
void require_shape(const NamedTensor& saved, at::IntArrayRef sizes) {
  if (saved.tensor.sizes() == sizes) return;
  throw UsageError(
      fmt::format("a rank's '{}' in the checkpoint has another shape than here; resume with the "
                  "model and the optimizer that saved it, or from another checkpoint",
                  saved.name));
}

}  // namespace

LocalState::LocalState(LocalSteps& local, torch::nn::Module& module,
                       torch::optim::Optimizer& optimizer, amp::GradScaler* scaler)
    : local_(local),
      group_(local.group()),
      optimizer_state_(optimizer, named_parameters(module)),
      scaler_(scaler) {}

// Collective.
std::vector<std::string> LocalState::all_fields(const std::vector<StateArray>& mine) {
  auto names = nlohmann::json::array();
  for (const auto& array : mine) names.push_back(array.name);
  const auto text = names.dump();
  const bool differs = group_.broadcast_text(text, 0) != text;
  if (group_.all_reduce_value(differs ? 1 : 0, comm::ReduceOp::max) == 0) {
    return names.get<std::vector<std::string>>();
  }
  std::set<std::string> all;
  for (const auto& theirs : group_.all_gather_text(text)) {
    for (const auto& name : nlohmann::json::parse(theirs)) all.insert(name.get<std::string>());
  }
  return {all.begin(), all.end()};
}

// Collective. A rank that has skipped all updates so far lacks the state of the others. Zeros have
// the same effect as none.
void LocalState::complete_fields() {
  const auto mine = optimizer_state_.arrays();
  const auto names = all_fields(mine);
  const bool has_all = std::ranges::equal(mine, names, {}, &StateArray::name);
  if (has_all) return;
  const auto fields = optimizer_state_.allocate(names);
  for (const auto& field : fields) {
    const auto had = std::ranges::find(mine, field.name, &StateArray::name);
    if (had == mine.end()) {
      field.tensor.zero_();
    } else {
      field.tensor.copy_(had->tensor);
    }
  }
  optimizer_state_.commit(fields);
}

std::vector<StateArray> LocalState::arrays() {
  const torch::NoGradGuard no_grad;
  std::vector<StateArray> arrays;
  if (local_.steps() <= local_.options().from) return arrays;  // the ranks do not differ yet
  const int ranks = group_.size();
  const auto add_row = [&](std::string name, const torch::Tensor& mine) {
    if (mine.numel() > 0) {
      arrays.push_back(own_row(std::move(name), mine, group_.rank(), ranks));
    }
  };
  const auto add_common = [&](std::string_view prefix, const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.numel() > 0) arrays.push_back(common_array(named(prefix, name), tensor, ranks));
    }
  };
  const auto state = local_.state();
  for (const auto& [name, tensor] : state.own) add_row(named(kModel, name), tensor);
  add_common(kStart, state.start);
  add_common(kVelocity, state.velocity);
  complete_fields();
  for (const auto& field : optimizer_state_.arrays()) {
    add_row(named(kState, field.name), field.tensor);
  }
  if (scaler_ != nullptr) {
    const auto& scale = scaler_->state();
    add_row(std::string(kScale), torch::tensor({static_cast<double>(scale.scale),
                                                static_cast<double>(scale.updates_since_change)},
                                               torch::kFloat64));
  }
  return arrays;
}

std::vector<StateArray> LocalState::places_for(const std::vector<SavedArray>& saved) {
  loaded_.clear();
  saved_ranks_ = 0;
  saved_apart_ = false;
  for (const auto& array : saved) {
    if (!is_row(array)) continue;
    saved_ranks_ = array.sizes[0];
    saved_apart_ = saved_apart_ || array.name.starts_with(kModel);
  }
  // Without rows, no rank had anything of its own.
  const bool same_ranks = saved_ranks_ == 0 || saved_ranks_ == group_.size();
  for (const auto& array : saved) {
    const auto options = torch::TensorOptions(torch::kCPU).dtype(array.type);
    if (is_row(array)) {
      if (!same_ranks) continue;
      const std::vector<std::int64_t> sizes(array.sizes.begin() + 1, array.sizes.end());
      loaded_.push_back(
          own_row(array.name, torch::empty(sizes, options), group_.rank(), group_.size()));
    } else if (!array.name.starts_with(kOwnRows) &&
               (same_ranks || array.name.starts_with(kVelocity))) {
      loaded_.push_back(
          common_array(array.name, torch::empty(array.sizes, options), group_.size()));
    }
  }
  return loaded_;
}

// By the names behind the prefix; rows without their first dimension.
std::vector<NamedTensor> LocalState::loaded(std::string_view prefix) const {
  std::vector<NamedTensor> found;
  for (const auto& array : loaded_) {
    if (!array.name.starts_with(prefix)) continue;
    const bool row = array.name.starts_with(kOwnRows);
    found.push_back({array.name.substr(prefix.size()), row ? array.tensor[0] : array.tensor});
  }
  return found;
}

// Collective. Ranks may have been on other nodes, or have trained alone.
bool LocalState::same_within_node(const std::vector<NamedTensor>& own) {
  auto& node = local_.gradient_group();
  std::int64_t checksum = own.empty() ? 0 : checksum_of(own);
  const auto least = node.all_reduce_value(checksum, comm::ReduceOp::min);
  const auto most = node.all_reduce_value(checksum, comm::ReduceOp::max);
  return group_.all_reduce_value(least == most ? 0 : 1, comm::ReduceOp::max) == 0;
}

void LocalState::restore_optimizer() {
  const torch::NoGradGuard no_grad;
  const auto saved = loaded(kState);
  if (saved.empty()) return;
  std::vector<std::string> names;
  for (const auto& array : saved) names.push_back(array.name);
  const auto fields = optimizer_state_.allocate(names);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    require_shape(saved[i], fields[i].tensor.sizes());
    fields[i].tensor.copy_(saved[i].tensor);
  }
  optimizer_state_.commit(fields);
}

void LocalState::restore_scaler() {
  const auto saved = loaded(kScale);
  if (scaler_ == nullptr || saved.empty()) return;
  require_shape({"loss_scale", saved.front().tensor}, {2});
  const auto values = saved.front().tensor.contiguous();
  scaler_->restore({static_cast<float>(values[0].item<double>()),
                    static_cast<std::int64_t>(values[1].item<double>())});
}

std::string LocalState::restore(std::int64_t step) {
  const auto let_go = [this] { loaded_.clear(); };
  LocalSteps::State state{loaded(kModel), loaded(kStart), loaded(kVelocity)};
  if (saved_ranks_ == 0) {
    local_.restore(step, state);
    return {};
  }
  local_.restore(step, {{}, {}, state.velocity});
  if (step < local_.options().from) {
    let_go();
    return saved_apart_ ? "local steps: all ranks continue from the mean of the parameters that "
                          "they had, because gradients are averaged in the next step"
                        : "";
  }
  const auto continues_alike =
      fmt::format("local steps: all ranks continue with {}the optimizer's state that rank 0 had",
                  saved_apart_ ? "the mean of the parameters and " : "");
  if (saved_ranks_ != group_.size()) {
    let_go();
    return fmt::format("{}, because the checkpoint has those of {}", continues_alike,
                       counted(saved_ranks_, "rank"));
  }
  if (!same_within_node(state.own)) {
    let_go();
    return fmt::format("{}, because ranks of one node had different ones", continues_alike);
  }
  restore_optimizer();
  restore_scaler();
  const bool lacks_start = local_.options().outer.kind == Outer::nesterov && state.start.empty();
  if (saved_apart_ && lacks_start) {
    let_go();
    return "local steps: all ranks continue from the mean of the parameters that they had, because "
           "the run that saved them had no outer optimizer";
  }
  local_.restore(step, state);
  let_go();
  return {};
}

}  // namespace ddp::train
