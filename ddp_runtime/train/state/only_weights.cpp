// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/only_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>

#include "hdf5_ckpt/convert/checkpoint_arrays.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::train {
namespace {

bool takes_average(const UserState& user) {
  const auto is_average = [](const auto& array) {
    return ("user/" + array.name).starts_with(ckpt::kAverages);
  };
  return std::ranges::any_of(user.tensors(), is_average) ||
         std::ranges::any_of(user.rows(), is_average);
}

}  // namespace

std::optional<double> average_left_in(const ckpt::Checkpoint& checkpoint, const UserState& user) {
  constexpr double kUsual = 0.999;  // any decay takes it
  if (takes_average(user) || !ckpt::has_average(checkpoint)) return std::nullopt;
  const auto& state = checkpoint.manifest().state;
  const auto decay = state.value(nlohmann::json::json_pointer("/run/ema"), nlohmann::json());
  return decay.is_number() ? decay.get<double>() : kUsual;
}

void require_same_weights(const ckpt::Checkpoint& checkpoint, const ModelArrays& model) {
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : model.plain()) known.insert(name);
  for (const auto& array : model.divided()) known.insert(array.name);
  for (const auto& array : checkpoint.arrays()) {
    if (!array.name.starts_with(ckpt::kModelPrefix) || known.contains(array.name)) continue;
    throw ckpt::MismatchError(
        fmt::format("checkpoint '{}' has '{}', and the model has not; build the same model as the "
                    "run that saved it",
                    checkpoint.path().string(), array.name));
  }
  if (!takes_average(model.user())) return;
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

}  // namespace ddp::train
