// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/errors.h"
#include "ddp_runtime/models/builtin.h"

namespace ddp::models {
namespace {

struct Known {
  std::string_view name;
  std::shared_ptr<Model> (*make)(const ModelOptions&);
  bool reads_tokens;
};

constexpr std::array kModels = {
    Known{"mlp", make_mlp, false},
    Known{"mnist-cnn", make_mnist_cnn, false},
    Known{"cifar-cnn", make_cifar_cnn, false},
    Known{"resnet18", make_resnet18, false},
    Known{"resnet50", make_resnet50, false},
    Known{"gpt", make_gpt, true},
};

void require_fitting(const Known& model, const ModelOptions& options) {
  if (model.reads_tokens && !options.tokens) {
    throw UsageError(
        fmt::format("{} reads text, but the data is not text; use --data text:FILE", model.name));
  }
  if (!model.reads_tokens && options.tokens) {
    throw UsageError(fmt::format("{} cannot read text; use --model gpt", model.name));
  }
  if (model.reads_tokens) return;
  if (options.heads > 0) {
    throw UsageError(fmt::format("{} has no attention heads; leave out --heads", model.name));
  }
  if (options.checkpoint_activations) {
    throw UsageError(fmt::format(
        "{} cannot recompute its activations; leave out --checkpoint-activations", model.name));
  }
}

}  // namespace

std::shared_ptr<Model> make_model(const ModelOptions& options) {
  const auto model = std::find_if(kModels.begin(), kModels.end(),
                                  [&](const Known& known) { return known.name == options.name; });
  if (model == kModels.end()) {
    throw UsageError(fmt::format("unknown model '{}'; use {}", options.name, model_names()));
  }
  require_fitting(*model, options);
  return model->make(options);
}

std::string model_names() {
  std::vector<std::string_view> names;
  for (const auto& model : kModels) names.push_back(model.name);
  const auto last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::int64_t parameter_count(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace ddp::models
