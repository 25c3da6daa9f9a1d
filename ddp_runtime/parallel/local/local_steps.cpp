// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/local/local_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/errors.h"
#include "ddp_runtime/comm/group/group_name.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "ddp_runtime/parallel/local/outer_step.h"
#include "ddp_runtime/parallel/local/tensor_average.h"
#include "ddp_runtime/parallel/replica/same_parameters.h"

namespace ddp {
namespace {

std::string described(const LocalStepsOptions& o) {
  return fmt::format("every {}, from {}, within {}, outer {}, {}, {}, check {}", o.every, o.from,
                     local_within_name(o.within), outer_name(o.outer.kind), o.outer.learning_rate,
                     o.outer.momentum, o.check_parameters_every);
}

// Collective. A rank whose own options are wrong tells the others, too.
const LocalStepsOptions& same_on_all_ranks(comm::Group& group, const LocalStepsOptions& options) {
  std::string problem;
  try {
    require_valid(options);
  } catch (const UsageError& error) {
    problem = error.what();
  }
  const auto all = group.all_gather_text(problem.empty() ? described(options) : "!" + problem);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].starts_with('!')) throw UsageError(all[rank].substr(1));
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw UsageError(fmt::format(
        "the ranks have different options of local steps: rank {} has '{}', and rank "
        "{} has '{}'; give all ranks the same",
        group.world_rank(static_cast<int>(rank)), all[rank], group.world_rank(0), all[0]));
  }
  return options;
}

// Collective. Ranks of one machine have the color of the first of them.
comm::Group& gradient_group_of(comm::Group& group, LocalWithin within) {
  if (within == LocalWithin::rank) return *group.split(group.rank(), 0, "alone");
  const auto keys = group.all_gather_text(group.machine_key());
  const auto mine = std::ranges::find(keys, keys.at(static_cast<std::size_t>(group.rank())));
  return *group.split(static_cast<int>(mine - keys.begin()), group.rank(), "node");
}

void require_averageable(torch::nn::Module& module, const std::vector<NamedTensor>& parameters) {
  if (communicates_in_forward(module)) {
    throw UsageError(
        "SyncBatchNorm makes all ranks wait for each other in every forward pass, which local "
        "steps "
        "avoid; use torch::nn::BatchNorm, whose statistics are averaged with the parameters");
  }
  for (const auto& [name, tensor] : parameters) {
    const auto type = tensor.scalar_type();
    if (type == torch::kFloat32 || type == torch::kFloat64) continue;
    throw UsageError(
        fmt::format("local steps average float32 and float64 parameters, and '{}' is {}; convert "
                    "the model, or train without local steps",
                    name, c10::toString(type)));
  }
}

std::vector<torch::Tensor> copies_of(std::span<const NamedTensor> tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& [name, tensor] : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

void append(std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Gives each tensor the value of the same name.
void take_values(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& values) {
  for (const auto& [name, tensor] : tensors) {
    const auto value = std::ranges::find(values, name, &NamedTensor::name);
    if (value != values.end() && value->tensor.sizes() == tensor.sizes()) {
      torch::Tensor(tensor).detach().copy_(value->tensor);
      continue;
    }
    throw UsageError(fmt::format(
        "the saved state of local steps {} '{}' of the model; resume with the model that saved it",
        value == values.end() ? "lacks" : "has another shape for", name));
  }
}

}  // namespace

LocalSteps::LocalSteps(torch::nn::Module& module, comm::Group& group,
                       const LocalStepsOptions& options)
    : module_(module),
      group_(group),
      options_(same_on_all_ranks(group, options)),
      within_(gradient_group_of(group, options.within)) {
  for (const auto& parameter : named_parameters(module)) {
    if (parameter.tensor.requires_grad()) parameters_.push_back(parameter);
  }
  for (const auto& buffer : named_buffers(module)) {
    (buffer.tensor.is_floating_point() ? statistics_ : counts_).push_back(buffer);
  }
  auto all = named_parameters(module);
  append(all, named_buffers(module));
  require_same_model(group, all);
  require_averageable(module, parameters_);
  broadcast_from_leader(group, all);
}

LocalSteps::~LocalSteps() = default;

comm::Group& LocalSteps::gradient_group() const noexcept {
  return is_synchronous() ? group_ : within_;
}

std::int64_t LocalSteps::bytes_per_average() const noexcept {
  if (!average_) return 0;
  return average_->bytes() + average_of_statistics_->bytes();
}

bool LocalSteps::are_apart() const noexcept {
  return in_round_ && within_.size() < group_.size();
}

std::vector<NamedTensor> LocalSteps::averaged() const {
  auto all = parameters_;
  append(all, statistics_);
  append(all, counts_);
  return all;
}

void LocalSteps::begin_step() {
  const torch::NoGradGuard no_grad;
  if (!own_.empty()) {
    const auto tensors = averaged();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      torch::Tensor(tensors[i].tensor).detach().copy_(own_[i]);
    }
    own_.clear();
  }
  if (options_.outer.kind == Outer::nesterov && !is_synchronous() && start_.empty()) {
    start_ = copies_of(parameters_);
  }
}

bool LocalSteps::end_step() {
  if (!own_.empty()) {
    throw RuntimeError(
        "a local step was made with the mean of the ranks' parameters: call begin_step() before "
        "each step, also after settle()");
  }
  const bool due = averages_next();
  in_round_ = in_round_ || !is_synchronous();
  ++steps_;
  if (!due) return false;
  if (are_apart() || options_.outer.kind != Outer::average) average(Then::outer_step);
  in_round_ = false;
  ++averages_;
  compare_parameters();
  return true;
}

void LocalSteps::settle() {
  if (own_.empty() && are_apart()) average(Then::settle);
}

void LocalSteps::average(Then then) {
  const torch::NoGradGuard no_grad;
  // Collective, and later than the constructor, so that synchronous steps need no memory for it.
  if (!average_) {
    average_ = std::make_unique<TensorAverage>(group_, parameters_, options_.buckets);
    average_of_statistics_ = std::make_unique<TensorAverage>(group_, statistics_, options_.buckets);
  }
  bool finite = average_->start();
  finite = average_of_statistics_->start() && finite;
  require_agreement(then, finite);
  average_->wait();
  average_of_statistics_->wait();
  if (then == Then::settle) {
    own_ = copies_of(averaged());
  } else if (options_.outer.kind == Outer::nesterov) {
    step_outside();
  }
  average_->take();
  average_of_statistics_->take();
  broadcast_from_leader(group_, counts_);
}

// Collective.
void LocalSteps::require_agreement(Then then, bool finite) {
  using Facts = std::array<std::int64_t, 3>;
  Facts mine{steps_, then == Then::settle ? 1 : 0, finite ? 0 : 1};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group_.size()));
  group_
      .all_gather(comm::buffer_of(std::span<std::int64_t>(mine)),
                  comm::buffer_of(std::span<std::int64_t>(all)), "steps of the ranks at an average")
      .wait();
  const auto fact = [&](int rank, std::size_t which) {
    return all[static_cast<std::size_t>(rank) * mine.size() + which];
  };
  std::vector<int> bad;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (fact(rank, 0) != fact(0, 0) || fact(rank, 1) != fact(0, 1)) {
      throw RuntimeError(fmt::format(
          "the ranks average their parameters at different times: rank {} {} step {}, and rank {} "
          "{} step {}; call begin_step(), end_step() and settle() alike on all ranks",
          group_.world_rank(rank), fact(rank, 1) == 1 ? "settles after" : "ends", fact(rank, 0),
          group_.world_rank(0), fact(0, 1) == 1 ? "settles after" : "ends", fact(0, 0)));
    }
    if (fact(rank, 2) != 0) bad.push_back(group_.world_rank(rank));
  }
  if (bad.empty()) return;
  throw RuntimeError(fmt::format(
      "the parameters or buffers of {} are not finite at the average after step {}; check the data "
      "of {}, lower the learning rate, or skip steps that are not finite",
      comm::describe_ranks(bad), steps_, bad.size() == 1 ? "that rank" : "these ranks"));
}

void LocalSteps::step_outside() {
  if (velocity_.empty()) {
    for (const auto& start : start_) {
      velocity_.push_back(options_.outer.momentum > 0 ? torch::zeros_like(start) : torch::Tensor());
    }
  }
  for (std::size_t i = 0; i < start_.size(); ++i) {
    outer_step(options_.outer, start_[i], velocity_[i], average_->mean(i));
  }
}

void LocalSteps::compare_parameters() {
  const auto every = options_.check_parameters_every;
  if (every == 0 || steps_ / every == compared_step_ / every) return;
  compared_step_ = steps_;
  require_same_parameters(group_, named_parameters(module_),
                          fmt::format("at the average after step {}", steps_));
}

LocalSteps::State LocalSteps::state() const {
  State state;
  const auto tensors = averaged();
  if (are_apart()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      state.own.push_back({tensors[i].name, own_.empty() ? tensors[i].tensor.detach() : own_[i]});
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (in_round_ && !start_.empty()) state.start.push_back({parameters_[i].name, start_[i]});
    if (!velocity_.empty() && velocity_[i].defined()) {
      state.velocity.push_back({parameters_[i].name, velocity_[i]});
    }
  }
  return state;
}

void LocalSteps::restore(std::int64_t step, const State& saved) {
  const torch::NoGradGuard no_grad;
  steps_ = compared_step_ = step;
  own_.clear();
  start_.clear();
  velocity_.clear();
  in_round_ = !saved.own.empty() || !saved.start.empty();
  if (!saved.own.empty()) take_values(averaged(), saved.own);
  if (options_.outer.kind != Outer::nesterov) return;
  const auto like_parameters = [&](const std::vector<NamedTensor>& values) {
    auto copies = parameters_;
    for (auto& copy : copies) copy.tensor = torch::empty_like(copy.tensor.detach());
    take_values(copies, values);
    std::vector<torch::Tensor> tensors;
    for (const auto& copy : copies) tensors.push_back(copy.tensor);
    return tensors;
  };
  if (!saved.start.empty()) start_ = like_parameters(saved.start);
  if (!saved.velocity.empty() && options_.outer.momentum > 0) {
    velocity_ = like_parameters(saved.velocity);
  }
}

}  // namespace ddp
