// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/freeze.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "hdf5_ckpt/convert/name_pattern.h"

namespace ddp::train {
namespace {

std::int64_t set_trained(const torch::nn::Module& module, std::string_view list, bool trained) {
  const auto patterns = ckpt::parse_patterns(list);
  const auto parameters = named_parameters(module);
  for (const auto& pattern : patterns) {
    const bool found =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const auto& parameter) { return pattern.matches(parameter.name); });
    if (found) continue;
    throw UsageError(fmt::format("'{}' matches no parameter of the model; one of them is '{}'",
                                 pattern.text(),
                                 parameters.empty() ? "" : parameters.front().name));
  }
  const auto matches = [&](const NamedTensor& parameter) {
    return any_matches(patterns, parameter.name);
  };
  const bool leaves_none =
      std::all_of(parameters.begin(), parameters.end(), [&](const auto& parameter) {
        return matches(parameter) || !parameter.tensor.requires_grad();
      });
  if (!trained && leaves_none) {
    throw UsageError(fmt::format("freezing '{}' leaves no parameter of the model to train", list));
  }
  std::int64_t count = 0;
  for (const auto& parameter : parameters) {
    if (!matches(parameter)) continue;
    // A handle, so that the copy changes the module's parameter.
    torch::Tensor(parameter.tensor).requires_grad_(trained);
    ++count;
  }
  return count;
}

}  // namespace

std::int64_t freeze(torch::nn::Module& module, std::string_view patterns) {
  return set_trained(module, patterns, false);
}

std::int64_t unfreeze(torch::nn::Module& module, std::string_view patterns) {
  return set_trained(module, patterns, true);
}

}  // namespace ddp::train
