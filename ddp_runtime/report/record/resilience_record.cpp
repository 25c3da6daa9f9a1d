// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/record/resilience_record.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ddp_runtime/report/record/error.h"

namespace ddp::report {
namespace {

using nlohmann::json;

constexpr std::string_view kKnownResilience = "slurm-ddp/resilience/1";
constexpr std::size_t kMaxGenerations = 10'000;
constexpr std::size_t kMaxBlamed = 16;
constexpr std::size_t kMaxResilienceText = 500;
constexpr double kMaxResilienceNumber = 1e15;

[[noreturn]] void fail_at(const char* key) {
  throw InputError(fmt::format("'resilience' of run.json has an impossible {}", key));
}

std::optional<double> amount_or_null(const json& object, const char* key) {
  const auto& value = object.at(key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) fail_at(key);
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number < 0 || number > kMaxResilienceNumber) fail_at(key);
  return number;
}

double known_amount(const json& object, const char* key) {
  const auto amount = amount_or_null(object, key);
  if (!amount) fail_at(key);
  return *amount;
}

std::string known_text(const json& value) {
  return value.get<std::string>().substr(0, kMaxResilienceText);
}

// `productive` is missing among what is lost.
UseSeconds uses_from(const json& object, double productive) {
  UseSeconds seconds{};
  for (std::size_t i = 0; i < kUsesOfTime.size(); ++i) {
    const auto key = std::string(kUsesOfTime[i].key);
    seconds[i] = key == "productive" && !object.contains(key) ? productive
                                                              : known_amount(object, key.c_str());
  }
  return seconds;
}

std::string blamed_text(const json& list) {
  std::string text;
  for (const auto& node : list) {
    if (text.size() > kMaxResilienceText || list.size() > kMaxBlamed) break;
    text += (text.empty() ? "" : ", ") + known_text(node);
  }
  return text;
}

ResilienceRecord::Generation generation_from(const json& object) {
  ResilienceRecord::Generation generation;
  generation.number = known_amount(object, "number");
  if (object.contains("job")) generation.job = known_text(object.at("job"));
  generation.nodes = known_amount(object, "nodes");
  generation.ranks = known_amount(object, "world_size");
  generation.from_step = amount_or_null(object, "from_step");
  generation.to_step = amount_or_null(object, "to_step");
  generation.steps_repeated = known_amount(object, "steps_repeated");
  generation.restored_from = known_text(object.at("restored_from"));
  generation.failed = object.at("failed").get<bool>();
  generation.why_ended = known_text(object.at("why_ended"));
  generation.blamed = blamed_text(object.at("blamed"));
  generation.detected_after = amount_or_null(object, "detected_after");
  generation.recovered_after = amount_or_null(object, "recovered_after");
  generation.seconds = uses_from(object.at("seconds"), 0);
  return generation;
}

ResilienceRecord resilience_from(const json& object) {
  if (const auto schema = known_text(object.at("schema")); schema != kKnownResilience) {
    throw InputError(fmt::format("'resilience' of run.json has the schema '{}', not {}", schema,
                                 kKnownResilience));
  }
  ResilienceRecord record;
  record.wall_seconds = known_amount(object, "wall_seconds");
  record.seconds = uses_from(object.at("lost"), known_amount(object, "productive_seconds"));
  record.ettr = amount_or_null(object, "ettr");
  if (record.ettr && *record.ettr > 1 + 1e-6) fail_at("ettr");
  record.jobs = known_amount(object, "jobs");
  record.faults = known_amount(object, "faults");
  record.mtti_seconds = amount_or_null(object, "mtti_seconds");
  const auto& checkpoints = object.at("checkpoints");
  record.checkpoint_interval = amount_or_null(checkpoints, "interval_seconds");
  record.young_interval = amount_or_null(checkpoints, "young_interval_seconds");
  record.generations_in_all = known_amount(object, "generations_in_all");
  record.older = uses_from(object.at("seconds_of_older_generations"), 0);
  record.after = uses_from(object.at("seconds_after_the_last"), 0);
  const auto& generations = object.at("generations");
  if (!generations.is_array() || generations.size() > kMaxGenerations) fail_at("generations");
  for (const auto& one : generations) record.generations.push_back(generation_from(one));
  return record;
}

}  // namespace

std::optional<ResilienceRecord> read_resilience(const json& run) {
  const auto found = run.find("resilience");
  if (found == run.end() || found->is_null()) return std::nullopt;
  try {
    return resilience_from(*found);
  } catch (const json::exception& error) {
    throw InputError(
        fmt::format("'resilience' of run.json is not what ddp-run writes: {}", error.what()));
  }
}

}  // namespace ddp::report
