// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/accounting/entry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/json/bounded_json.h"
#include "base/text.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

constexpr double kMaxSeconds = 1e8;
constexpr double kMaxUnixSeconds = 1e11;
constexpr std::int64_t kMaxStep = 1'000'000'000'000'000;
constexpr int kMaxNodes = 1'000'000;
constexpr int kMaxRanksPerNode = 100'000;
constexpr std::size_t kMaxEntryText = 500;
constexpr std::size_t kMaxBlamedNodes = 16;

constexpr std::array<std::pair<std::string_view, EntryKind>, 17> kKinds{{
    {"begin", EntryKind::begin},
    {"start", EntryKind::start},
    {"rank_ready", EntryKind::rank_ready},
    {"rank_ended", EntryKind::rank_ended},
    {"told", EntryKind::told},
    {"restoring", EntryKind::restoring},
    {"training", EntryKind::training},
    {"progress", EntryKind::progress},
    {"kept", EntryKind::kept},
    {"signaled", EntryKind::signaled},
    {"failed", EntryKind::failed},
    {"stop", EntryKind::stop},
    {"kill", EntryKind::kill},
    {"executor_gone", EntryKind::executor_gone},
    {"exclude", EntryKind::exclude},
    {"requeue", EntryKind::requeue},
    {"finish", EntryKind::finish},
}};

EntryKind kind_of(std::string_view name) {
  const auto found =
      std::ranges::find(kKinds, name, &std::pair<std::string_view, EntryKind>::first);
  return found == kKinds.end() ? EntryKind::something_else : found->second;
}

std::string text_or_empty(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string()) return {};
  return std::string(beginning_of(at->get_ref<const std::string&>(), kMaxEntryText));
}

std::int64_t whole_number(const json& object, const char* key, std::int64_t min, std::int64_t max) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number_integer()) return min;
  // A number beyond the signed ones would become negative.
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > static_cast<std::uint64_t>(max)) {
    return max;
  }
  return std::clamp(at->get<std::int64_t>(), min, max);
}

int small_number(const json& object, const char* key, int min, int max) {
  return static_cast<int>(whole_number(object, key, min, max));
}

// The nodes of `start` are a list, those of `begin` a number.
int number_of_nodes(const json& line) {
  const auto at = line.find("nodes");
  if (at == line.end() || !at->is_array()) return small_number(line, "nodes", 0, kMaxNodes);
  return static_cast<int>(std::min<std::size_t>(at->size(), kMaxNodes));
}

std::vector<std::string> blamed_nodes(const json& line) {
  std::vector<std::string> nodes;
  const auto at = line.find("blamed");
  if (at == line.end() || !at->is_array()) return nodes;
  for (const auto& node : *at) {
    if (nodes.size() == kMaxBlamedNodes) break;
    if (node.is_string()) {
      nodes.emplace_back(beginning_of(node.get_ref<const std::string&>(), kMaxEntryText));
    }
  }
  return nodes;
}

bool is_true(const json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_boolean() && at->get<bool>();
}

double unix_seconds_of(const json& line) {
  const auto at = line.find("t");
  if (at == line.end() || !at->is_number()) return 0;
  const auto seconds = at->get<double>();
  return std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMaxUnixSeconds) : 0;
}

}  // namespace

std::optional<Micros> micros_from_json(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number()) return std::nullopt;
  const auto seconds = at->get<double>();
  if (!std::isfinite(seconds) || seconds < 0) return std::nullopt;
  return static_cast<Micros>(std::llround(std::min(seconds, kMaxSeconds) * 1e6));
}

std::optional<Entry> entry_from_json(const json& line) {
  if (!line.is_object()) return std::nullopt;
  const auto name = text_or_empty(line, line.contains("event") ? "event" : "action");
  if (name.empty()) return std::nullopt;
  Entry entry;
  entry.kind = kind_of(name);
  if (entry.kind == EntryKind::kept && text_or_empty(line, "tier") == "memory") {
    entry.kind = EntryKind::kept_in_memory;
  }
  entry.run = text_or_empty(line, "run");
  entry.job = text_or_empty(line, "job");
  entry.since_begin = micros_from_json(line, "seconds");
  entry.unix_seconds = unix_seconds_of(line);
  entry.generation = small_number(line, "generation", 0, INT32_MAX);
  entry.step = whole_number(line, "step", 0, kMaxStep);
  entry.code = small_number(line, "code", 0, 255);
  entry.signal = small_number(line, "signal", 0, 255);
  entry.save = is_true(line, "save");
  entry.nodes = number_of_nodes(line);
  entry.allocated_nodes = small_number(line, "allocated", 0, kMaxNodes);
  entry.ranks_per_node = small_number(line, "ranks_per_node", 1, kMaxRanksPerNode);
  entry.restore = text_or_empty(line, "restore");
  entry.text = text_or_empty(line, line.contains("why") ? "why" : "text");
  entry.node = text_or_empty(line, "node");
  entry.blamed = blamed_nodes(line);
  entry.steps_time = micros_from_json(line, "step_seconds");
  entry.stall_time = micros_from_json(line, "stall_seconds").value_or(0);
  entry.saves = whole_number(line, "saves", 0, kMaxStep);
  return entry;
}

std::optional<Entry> parse_entry(std::string_view line) {
  return entry_from_json(parse_bounded_json_or_null(line));
}

}  // namespace ddp::elastic
