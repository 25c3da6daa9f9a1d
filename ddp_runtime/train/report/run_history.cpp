// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/run_history.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/json/bounded_json.h"

namespace ddp::train {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxProcesses = 1000;
constexpr std::ptrdiff_t kCommasInARow = 6;
constexpr std::ptrdiff_t kCommasInAnOldRow = 4;
constexpr std::int64_t kMaxGeneration = 1'000'000'000;

json value_or_null(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_primitive() ? *found : json();
}

// Summarizes the process that wrote the file, without its ranks and phases.
json summary_of(const json& run, const json& covers) {
  json summary = {{"first_step", value_or_null(covers, "first_step")},
                  {"last_step", value_or_null(covers, "last_step")}};
  for (const char* key :
       {"outcome", "started_unix", "finished_unix", "world_size", "steps", "samples_per_second"}) {
    summary[key] = value_or_null(run, key);
  }
  return summary;
}

// The last column but one.
std::optional<std::int64_t> generation_of_row(std::string_view line) {
  const auto last = line.rfind(',');
  const auto before = line.rfind(',', last - 1);
  const auto text = line.substr(before + 1, last - before - 1);
  std::int64_t generation = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), generation);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (generation < 1 || generation > kMaxGeneration) return std::nullopt;
  return generation;
}

}  // namespace

json earlier_processes(std::string_view run_json) {
  json list = json::array();
  const json run = parse_bounded_json_or_null(run_json);
  if (!run.is_object()) return list;
  const auto covers = run.find("covers");
  const json known = covers != run.end() && covers->is_object() ? *covers : json::object();
  if (const auto earlier = known.find("earlier"); earlier != known.end() && earlier->is_array()) {
    const std::size_t from =
        earlier->size() - std::min<std::size_t>(earlier->size(), kMaxProcesses - 1);
    for (std::size_t i = from; i < earlier->size(); ++i) {
      if ((*earlier)[i].is_object()) list.push_back((*earlier)[i]);
    }
  }
  list.push_back(summary_of(run, known));
  return list;
}

json unfinished_report(std::string_view run_json, std::int64_t steps, const json& settings) {
  json run = parse_bounded_json_or_null(run_json);
  if (!run.is_object()) return nullptr;
  const auto covers = run.find("covers");
  if (covers == run.end() || !covers->is_object()) return nullptr;
  const auto outcome = value_or_null(run, "outcome");
  const auto last_step = value_or_null(*covers, "last_step");
  // One that lacks later steps would have the end of a run and the losses of its middle.
  const bool is_its = last_step.is_number_integer() && last_step.get<std::int64_t>() == steps &&
                      run.value("settings", json()) == settings;
  return is_its && outcome.is_string() && outcome != "finished" ? std::move(run) : json();
}

json completed_report(json unfinished, const json& ending) {
  const auto known = unfinished.find("final");
  const auto train_loss = known != unfinished.end() && known->is_object()
                              ? value_or_null(*known, "train_loss")
                              : json();
  for (const char* key :
       {"outcome", "outcome_reason", "final", "parameters_crc32c", "finished_unix"}) {
    unfinished[key] = ending.at(key);
  }
  // The process that evaluated may not know the losses of the last epoch.
  auto& loss = unfinished.at("final").at("train_loss");
  if (loss == 0 && !train_loss.is_null()) loss = train_loss;
  return unfinished;
}

json resilience_of_earlier(std::string_view run_json) {
  json run = parse_bounded_json_or_null(run_json);
  if (!run.is_object()) return nullptr;
  const auto found = run.find("resilience");
  return found != run.end() && found->is_object() ? std::move(*found) : json();
}

bool KeptRows::operator()(std::string_view line) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  if (error != std::errc() || end == line.data() + line.size() || *end != ',') return false;
  const auto commas = std::count(line.begin(), line.end(), ',');
  if (commas != kCommasInARow && commas != kCommasInAnOldRow) return false;
  if (step <= newest_ || step > last_step_) return false;
  if (commas == kCommasInARow) {
    const auto generation = generation_of_row(line);
    if (!generation) return false;
    generation_ = std::max(generation_, *generation);
  }
  newest_ = step;
  ++count_;
  return true;
}

}  // namespace ddp::train
