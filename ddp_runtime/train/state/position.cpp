// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/position.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/errors.h"

namespace ddp::train {
namespace {

nlohmann::json value_or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::optional<double> value_in(const nlohmann::json& object, const char* name) {
  if (!object.contains(name) || object.at(name).is_null()) return std::nullopt;
  return object.at(name).get<double>();
}

}  // namespace

void Position::begin_epoch(std::int64_t number) {
  epoch = number;
  consumed = 0;
  loss_sum = 0;
  loss_steps = 0;
}

nlohmann::json Position::to_json() const {
  return {{"epoch", epoch},
          {"consumed", consumed},
          {"step", step},
          {"loss_sum", loss_sum},
          {"loss_steps", loss_steps},
          {"first_batch", first_batch},
          {"best_loss", value_or_null(best.loss.cost)},
          {"epochs_since_best", best.loss.epochs_since},
          {"best_accuracy_cost", value_or_null(best.accuracy.cost)},
          {"epochs_since_best_accuracy", best.accuracy.epochs_since},
          {"loss_scale", loss_scale.scale},
          {"updates_since_scale_change", loss_scale.updates_since_change}};
}

// Old checkpoints do not have the best evaluations, the loss scale and the first batch.
Position Position::from_json(const nlohmann::json& json) {
  try {
    Position p;
    p.epoch = json.at("epoch").get<std::int64_t>();
    p.consumed = json.at("consumed").get<std::int64_t>();
    p.step = json.at("step").get<std::int64_t>();
    p.loss_sum = json.at("loss_sum").get<double>();
    p.loss_steps = json.at("loss_steps").get<std::int64_t>();
    p.first_batch = std::max<std::int64_t>(0, json.value("first_batch", std::int64_t{0}));
    p.best.loss = {value_in(json, "best_loss"), json.value("epochs_since_best", std::int64_t{0})};
    p.best.accuracy = {value_in(json, "best_accuracy_cost"),
                       json.value("epochs_since_best_accuracy", std::int64_t{0})};
    p.loss_scale.scale = json.value("loss_scale", 0.0F);
    p.loss_scale.updates_since_change = json.value("updates_since_scale_change", std::int64_t{0});
    return p;
  } catch (const nlohmann::json::exception& e) {
    throw UsageError(fmt::format(
        "the checkpoint has no training position ({}): it was not saved by a training run; "
        "choose another one for --resume",
        e.what()));
  }
}

}  // namespace ddp::train
