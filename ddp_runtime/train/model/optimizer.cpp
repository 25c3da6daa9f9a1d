// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/errors.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp::train {
namespace {

// Creates an optimizer of one kind with its options, over both groups. An empty group is left out:
// the optimizers of 1.13 refuse it.
//
// The optimizer's own options are its class's defaults, apart from the learning rate. From 2.12 on,
// the constructor assumes that an option of a group was not given if it equals the class's default,
// and overwrites it with the optimizer's: parameters without weight decay would get it.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> over(const DecayGroups& groups, const Options& options) {
  std::vector<torch::optim::OptimizerParamGroup> parts;
  const auto add = [&](const std::vector<torch::Tensor>& parameters, double weight_decay) {
    if (parameters.empty()) return;
    auto own = std::make_unique<Options>(options);
    own->weight_decay(weight_decay);
    parts.emplace_back(parameters, std::move(own));
  };
  add(groups.decayed, options.weight_decay());
  add(groups.free, 0);
  return std::make_unique<Optimizer>(std::move(parts), Options(options.lr()));
}

}  // namespace

DecayGroups decay_groups(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> embeddings;
  for_each_module(module, [&](const std::string&, const torch::nn::Module& part) {
    if (const auto* embedding = part.as<torch::nn::Embedding>()) {
      embeddings.insert(embedding->weight.unsafeGetTensorImpl());
    }
  });
  DecayGroups groups;
  for (const auto& [name, parameter] : named_parameters(module)) {
    if (!parameter.requires_grad()) continue;
    const bool decays =
        parameter.dim() > 1 && !embeddings.contains(parameter.unsafeGetTensorImpl());
    (decays ? groups.decayed : groups.free).push_back(parameter);
  }
  return groups;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const torch::nn::Module& module,
                                                        const OptimizerOptions& options) {
  using torch::optim::AdamOptions;
  using torch::optim::AdamWOptions;
  using torch::optim::SGDOptions;
  const auto groups = decay_groups(module);
  const double lr = options.learning_rate;
  if (options.name == "sgd") {
    return over<optim::SGD>(
        groups, SGDOptions(lr).momentum(options.momentum).weight_decay(options.weight_decay));
  }
  if (options.name == "adam") {
    return over<optim::Adam>(groups, AdamOptions(lr).weight_decay(options.weight_decay));
  }
  if (options.name == "adamw") {
    return over<optim::AdamW>(groups, AdamWOptions(lr).weight_decay(options.weight_decay));
  }
  throw UsageError(fmt::format("unknown optimizer '{}'; use sgd, adam or adamw", options.name));
}

GroupRates::GroupRates(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    const double rate = group.options().get_lr();
    if (!std::isfinite(rate) || rate < 0) {
      throw UsageError(fmt::format(
          "parameter group {} of the optimizer has a learning rate of {}; give it one that is 0 or "
          "more",
          fractions_.size(), rate));
    }
    fractions_.push_back(rate);
    base_ = std::max(base_, rate);
  }
  for (double& fraction : fractions_) fraction = base_ > 0 ? fraction / base_ : 0;
}

void GroupRates::set(torch::optim::Optimizer& optimizer, double learning_rate) const {
  auto& groups = optimizer.param_groups();
  if (groups.size() != fractions_.size()) {
    throw UsageError(fmt::format(
        "the optimizer has {} parameter groups, but it had {} when training began; add all groups "
        "before",
        groups.size(), fractions_.size()));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(learning_rate * fractions_[i]);
  }
}

}  // namespace ddp::train
