// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/record/pipeline_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ddp_runtime/report/record/error.h"

namespace ddp::report {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxStages = 65536;
constexpr std::size_t kMaxPieces = 1'000'000;
constexpr std::size_t kMaxPieceName = 256;
constexpr double kMaxNumber = 1e15;

void require_valid(bool valid, const char* what) {
  if (!valid) throw InputError(fmt::format("'pipeline' of run.json has an impossible {}", what));
}

double amount_of(const json& value, const char* what) {
  require_valid(value.is_number(), what);
  const auto number = value.get<double>();
  require_valid(std::isfinite(number) && number >= 0 && number <= kMaxNumber, what);
  return number;
}

double share_of_time(const json& value, const char* what) {
  const double share = amount_of(value, what);
  require_valid(share <= 1 + 1e-6, what);
  return share;
}

std::size_t count_of(const json& value, std::size_t most, const char* what) {
  require_valid(value.is_number_integer() && value >= 1 && value <= most, what);
  return value.get<std::size_t>();
}

const json& list_of(const json& object, const char* key, std::size_t most) {
  const auto& list = object.at(key);
  require_valid(list.is_array() && !list.empty() && list.size() <= most, key);
  return list;
}

std::string name_at(const json& pieces, std::size_t place) {
  return pieces.at(place).get<std::string>().substr(0, kMaxPieceName);
}

// The means over the ranks that have the stage.
void add_shares(PipelineRecord& record, const json& ranks) {
  for (std::size_t stage = 0; stage < record.stages.size(); ++stage) {
    auto& its = record.stages[stage];
    double count = 0;
    for (std::size_t rank = stage % record.ranks; rank < ranks.size(); rank += record.ranks) {
      its.computing_share += share_of_time(ranks[rank].at("computing_share"), "computing_share");
      its.waiting_share += share_of_time(ranks[rank].at("waiting_share"), "waiting_share");
      ++count;
    }
    if (count == 0) continue;
    its.computing_share /= count;
    its.waiting_share /= count;
  }
}

PipelineRecord record_of(const json& object) {
  PipelineRecord record;
  record.ranks = count_of(object.at("ranks_per_pipeline"), kMaxStages, "ranks_per_pipeline");
  record.pipelines = amount_of(object.at("pipelines"), "pipelines");
  record.schedule = object.at("schedule").get<std::string>().substr(0, kMaxPieceName);
  record.micro_batches = amount_of(object.at("micro_batches"), "micro_batches");
  record.predicted_idle_share =
      share_of_time(object.at("predicted_idle_share"), "predicted_idle_share");
  record.idle_share_of_balance =
      share_of_time(object.at("idle_share_of_balance"), "idle_share_of_balance");
  const auto& pieces = list_of(object, "pieces", kMaxPieces);
  std::size_t first = 0;
  for (const auto& entry : list_of(object, "balance", kMaxStages)) {
    const auto count = count_of(entry, pieces.size() - first, "balance");
    const auto stage = record.stages.size();
    auto name = name_at(pieces, first);
    if (count > 1) name += " to " + name_at(pieces, first + count - 1);
    record.stages.push_back({std::move(name),
                             amount_of(object.at("stage_parameters").at(stage), "stage_parameters"),
                             amount_of(object.at("stage_seconds").at(stage), "stage_seconds")});
    first += count;
  }
  add_shares(record, list_of(object, "ranks", kMaxStages));
  const auto& better = object.at("better");
  if (better.is_null()) return record;
  std::vector<std::size_t> balance;
  for (const auto& entry : list_of(better, "balance", kMaxStages)) {
    balance.push_back(count_of(entry, kMaxPieces, "balance"));
  }
  record.better_balance = fmt::format("{}", fmt::join(balance, ","));
  record.better_idle_share = share_of_time(better.at("idle_share"), "idle_share");
  return record;
}

}  // namespace

std::optional<PipelineRecord> read_pipeline(const json& run) {
  const auto found = run.find("pipeline");
  if (found == run.end() || found->is_null()) return std::nullopt;
  try {
    return record_of(*found);
  } catch (const json::exception& error) {
    throw InputError(
        fmt::format("'pipeline' of run.json is not what ddp-train writes: {}", error.what()));
  }
}

}  // namespace ddp::report
