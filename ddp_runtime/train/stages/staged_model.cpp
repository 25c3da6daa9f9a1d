// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/stages/staged_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/train/objective/objective.h"

namespace ddp::train {
namespace {

using PieceClock = std::chrono::steady_clock;

constexpr int kMeasuredPasses = 3;  // of which the fastest counts

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  auto tensors = named_parameters(module);
  for (auto& buffer : named_buffers(module)) tensors.push_back(std::move(buffer));
  return tensors;
}

// The tensor keeps its shape and its place on the device.
void drop_memory(const torch::Tensor& tensor, std::optional<torch::Device> device) {
  if (is_without_memory(tensor)) return;
  const torch::NoGradGuard no_grad;
  auto hollow = torch::empty_strided(
      tensor.sizes(), tensor.strides(),
      tensor.options().requires_grad(false).device(device.value_or(tensor.device())));
  const auto where = hollow.device();
  hollow.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, where));
  auto changed = tensor;
  changed.set_data(hollow);
}

void drop_all(const torch::nn::Module& module, std::optional<torch::Device> device) {
  for (const auto& [name, tensor] : tensors_of(module)) drop_memory(tensor, device);
}

std::int64_t parameters_of(const models::Piece& piece) {
  std::set<const c10::TensorImpl*> counted;
  std::int64_t count = 0;
  for (const auto& module : piece.modules) {
    for (const auto& parameter : module->parameters()) {
      if (counted.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
    }
  }
  return count;
}

// Forward and backward of one piece, and its output.
std::pair<double, torch::Tensor> measure(const models::Piece& piece, const torch::Tensor& given) {
  auto input = given.detach();
  if (input.is_floating_point()) input.requires_grad_();
  const auto begin = PieceClock::now();
  const auto output = piece.forward(input);
  output.sum().backward();
  const std::chrono::duration<double> time = PieceClock::now() - begin;
  return {time.count(), output.detach()};
}

std::vector<double> measure_all(const std::vector<models::Piece>& pieces,
                                const data::Batch& sample) {
  std::vector<double> fastest(pieces.size(), std::numeric_limits<double>::infinity());
  for (int pass = 0; pass < kMeasuredPasses; ++pass) {
    auto x = sample.inputs;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto [seconds, output] = measure(pieces[i], x);
      fastest[i] = std::min(fastest[i], seconds);
      x = std::move(output);
    }
  }
  return fastest;
}

// Modules within a stage have no dots in their names.
std::string name_in_stage(std::string name) {
  std::ranges::replace(name, '.', '_');
  return name;
}

class StageModule final : public torch::nn::Module {
 public:
  void add(const std::string& name, const std::shared_ptr<torch::nn::Module>& module) {
    if (named_children().contains(name)) return;
    register_module(name, module);
  }
};

void require_ranks(const StageOptions& options, int ranks) {
  if (ranks % options.ranks == 0) return;
  throw UsageError(fmt::format(
      "{} ranks cannot be divided into pipelines of {} (--stages); use a multiple of {}", ranks,
      options.ranks, options.ranks));
}

}  // namespace

StagedModel::StagedModel(comm::Group& group, const StageOptions& options, const BuildModel& build,
                         const std::function<data::Batch()>& sample,
                         std::optional<torch::Device> device)
    : options_(options),
      rank_(group.rank()),
      ranks_(group.size()),
      residence_(group.rank(), group.size()) {
  require_ranks(options, ranks_);
  plan_ = plan_stages(options, costs_of_pieces(group, build, sample));
  build_own(build, device);
}

void StagedModel::find_pieces() {
  pieces_ = model_->pieces();
  if (!pieces_.empty()) return;
  throw UsageError("the model cannot be cut into stages (--stages), because it names no pieces");
}

std::vector<PieceCost> StagedModel::costs_of_pieces(comm::Group& group, const BuildModel& build,
                                                    const std::function<data::Batch()>& sample) {
  const bool measures = options_.balance == "time";
  const bool keeps = measures && rank_ == 0;
  model_ = build([&](torch::nn::Module& unit) {
    units_.push_back(&unit);
    if (!keeps) drop_all(unit, {});
  });
  find_pieces();
  std::vector<PieceCost> costs;
  for (const auto& piece : pieces_) costs.push_back({piece.name, parameters_of(piece)});
  if (!measures) return costs;
  nlohmann::json seconds;
  if (keeps) seconds = measure_all(pieces_, sample());
  seconds = nlohmann::json::parse(group.broadcast_text(seconds.dump(), 0));
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i].seconds = seconds.at(i).get<double>();
  return costs;
}

bool StagedModel::is_own(const torch::nn::Module& module) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (plan_.stage_of(i) % options_.ranks != options_.place(rank_)) continue;
    for (const auto& part : pieces_[i].modules) {
      if (part.get() == &module) return true;
    }
  }
  return false;
}

// See Note [Models in stages]. Both builds have the same units in the same order.
void StagedModel::build_own(const BuildModel& build, std::optional<torch::Device> device) {
  std::vector<bool> is_kept;
  for (const auto* const unit : units_) is_kept.push_back(is_own(*unit));
  units_.clear();
  pieces_.clear();
  model_.reset();
  std::size_t number = 0;
  model_ = build([&](torch::nn::Module& unit) {
    if (!is_kept.at(number++)) drop_all(unit, device);
  });
  find_pieces();
  place_tensors();
  keep_own(device);
}

void StagedModel::keep_own(std::optional<torch::Device> device) const {
  for (const auto& [name, tensor] : tensors_of(*model_)) {
    if (!residence_.is_here(tensor)) {
      drop_memory(tensor, device);
    } else if (device) {
      auto moved = tensor;
      moved.set_data(tensor.detach().to(*device));
    }
  }
}

// Tied tensors belong to the ranks of all stages that have them, of which the first saves.
void StagedModel::place_tensors() {
  std::vector<std::pair<torch::Tensor, std::vector<int>>> places;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const int place = plan_.stage_of(i) % options_.ranks;
    for (const auto& module : pieces_[i].modules) {
      for (const auto& [name, tensor] : tensors_of(*module)) {
        auto found = std::ranges::find_if(
            places, [&, &its = tensor](const auto& known) { return known.first.is_same(its); });
        if (found == places.end()) found = places.insert(places.end(), {tensor, {}});
        for (int rank = place; rank < ranks_; rank += options_.ranks) {
          if (std::ranges::find(found->second, rank) == found->second.end()) {
            found->second.push_back(rank);
          }
        }
      }
    }
  }
  for (auto& [tensor, ranks] : places) residence_.add(tensor, std::move(ranks));
  for (const auto& [name, tensor] : tensors_of(*model_)) {
    if (residence_.has(tensor)) continue;
    throw UsageError(fmt::format(
        "the model cannot be cut into stages (--stages): none of its pieces has '{}'", name));
  }
}

std::shared_ptr<torch::nn::Module> StagedModel::module_of(int stage) const {
  std::unordered_map<const torch::nn::Module*, std::string> names;
  for_each_module(static_cast<const torch::nn::Module&>(*model_),
                  [&](const std::string& name, const torch::nn::Module& part) {
                    names.emplace(&part, name_in_stage(name));
                  });
  auto module = std::make_shared<StageModule>();
  const auto first = plan_.first_piece(stage);
  const auto count = static_cast<std::size_t>(plan_.balance[static_cast<std::size_t>(stage)]);
  for (std::size_t i = first; i < first + count; ++i) {
    for (const auto& part : pieces_[i].modules) module->add(names.at(part.get()), part);
  }
  return module;
}

std::vector<pipeline::TiedWeight> StagedModel::tied() const {
  std::vector<std::pair<torch::Tensor, pipeline::TiedWeight>> uses;
  for (int stage = 0; stage < options_.count(); ++stage) {
    for (const auto& [name, tensor] : named_parameters(*module_of(stage))) {
      auto found = std::ranges::find_if(
          uses, [&, &its = tensor](const auto& use) { return use.first.is_same(its); });
      if (found == uses.end()) found = uses.insert(uses.end(), {tensor, {}});
      found->second.push_back({stage, name});
    }
  }
  std::vector<pipeline::TiedWeight> tied;
  for (auto& [tensor, places] : uses) {
    if (places.size() > 1) tied.push_back(std::move(places));
  }
  return tied;
}

}  // namespace ddp::train
