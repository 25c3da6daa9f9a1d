// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/tied_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::pipeline {
namespace {

torch::Tensor find_parameter(const std::vector<OwnStage>& stages, const StageParameter& wanted) {
  for (const auto& own : stages) {
    if (own.number != wanted.stage || !own.stage.module) continue;
    const auto parameters = own.stage.module->named_parameters();
    if (const auto* found = parameters.find(wanted.name)) return *found;
  }
  throw UsageError(fmt::format(
      "stage {} has no parameter '{}', which PipelineOptions::tied names; give its name in the "
      "module of the stage",
      wanted.stage, wanted.name));
}

std::string describe_tied(const TiedWeight& weight) {
  std::string text;
  for (const auto& place : weight) {
    text += fmt::format("{}'{}' of stage {}", text.empty() ? "" : " and ", place.name, place.stage);
  }
  return text;
}

void require_stages(const TiedWeight& weight, int stages) {
  const bool ascend = std::is_sorted(
      weight.begin(), weight.end(), [](const auto& a, const auto& b) { return a.stage < b.stage; });
  const bool exist = std::all_of(weight.begin(), weight.end(), [&](const StageParameter& place) {
    return place.stage >= 0 && place.stage < stages;
  });
  if (weight.size() > 1 && ascend && exist) return;
  throw UsageError(
      fmt::format("PipelineOptions::tied has {} in one entry ({}); an entry needs two or more, in "
                  "the order of their stages, of which there are {}",
                  counted(weight.size(), "parameter"), describe_tied(weight), stages));
}

}  // namespace

TiedWeights::TiedWeights(comm::Group& pipe, const std::vector<OwnStage>& stages,
                         const std::vector<TiedWeight>& weights) {
  const int count = static_cast<int>(stages.size()) * pipe.size();
  for (const auto& weight : weights) {
    require_stages(weight, count);
    Copies copies;
    int first = count;  // stage of this rank's first copy
    bool on_one_rank = true;
    for (const auto& place : weight) {
      const int rank = rank_of_stage(place.stage, pipe.size());
      on_one_rank = on_one_rank && rank == rank_of_stage(weight.front().stage, pipe.size());
      if (rank != pipe.rank()) continue;
      copies.own.push_back(find_parameter(stages, place));
      first = std::min(first, place.stage);
    }
    if (!on_one_rank) {
      copies.group = pipe.split(copies.own.empty() ? -1 : 0, first, "tied weight");
    }
    if (copies.own.empty()) continue;
    const bool has_first = first == weight.front().stage;
    further_.insert(further_.end(), copies.own.begin() + (has_first ? 1 : 0), copies.own.end());
    std::vector<NamedTensor> shared = {{describe_tied(weight), copies.own.front()}};
    for (const auto& other : copies.own) {
      if (other.sizes() == shared[0].tensor.sizes() && other.dtype() == shared[0].tensor.dtype()) {
        continue;
      }
      throw RuntimeError(fmt::format("{} are tied, but differ in shape or type", shared[0].name));
    }
    if (copies.group != nullptr) {
      require_same_model(*copies.group, shared);
      broadcast_from_leader(*copies.group, shared);
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 1; i < copies.own.size(); ++i) copies.own[i].copy_(copies.own.front());
    weights_.push_back(std::move(copies));
  }
}

bool TiedWeights::is_further_copy(const torch::Tensor& parameter) const noexcept {
  return std::any_of(further_.begin(), further_.end(),
                     [&](const torch::Tensor& copy) { return copy.is_same(parameter); });
}

void TiedWeights::add_up() {
  for (const auto& copies : weights_) add_up(copies);
}

void TiedWeights::add_up(const Copies& copies) {
  const torch::NoGradGuard no_grad;
  torch::Tensor sum = torch::zeros_like(copies.own.front());
  bool is_first = true;
  for (const auto& copy : copies.own) {
    if (!copy.grad().defined()) continue;
    is_first ? sum.copy_(copy.grad()) : sum.add_(copy.grad());
    is_first = false;
  }
  if (copies.group != nullptr) {
    copies.group
        ->all_reduce(buffer_of(sum), comm::ReduceOp::sum, "gradient of a tied weight",
                     std::make_shared<const torch::Tensor>(sum))
        .wait();
  }
  for (auto copy : copies.own) {
    copy.grad().defined() ? static_cast<void>(copy.grad().copy_(sum))
                          : static_cast<void>(copy.mutable_grad() = sum.clone());
  }
}

}  // namespace ddp::pipeline
