// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::comm {
namespace {

constexpr std::size_t kMaxRecords = 256;
constexpr std::size_t kMaxChannels = 256;
constexpr std::size_t kMaxSnapshotText = 448;
constexpr std::size_t kMaxChannelText = 160;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string shortened(std::string text, std::size_t bytes = kMaxSnapshotText) {
  text.resize(beginning_of(text, bytes).size());
  return text;
}

OnGpu on_gpu_of(int number) {
  return number == 1 ? OnGpu::held : number == 2 ? OnGpu::running : OnGpu::no;
}

}  // namespace

const OperationRecord* RankSnapshot::stuck_in(const std::string& channel) const noexcept {
  const OperationRecord* stuck = nullptr;
  for (auto record = recent.rbegin(); record != recent.rend(); ++record) {
    if (record->channel != channel) continue;
    if (record->seconds && !record->failed) break;
    stuck = &*record;
  }
  return stuck;
}

std::vector<const OperationRecord*> RankSnapshot::stuck_in() const {
  std::set<std::string> channels;
  for (const auto& record : recent) channels.insert(record.channel);
  std::vector<const OperationRecord*> stuck;
  for (const auto& channel : channels) {
    if (const auto* record = stuck_in(channel)) stuck.push_back(record);
  }
  return stuck;
}

std::uint64_t RankSnapshot::begun_in(const std::string& channel) const {
  const auto found = collectives_begun.find(channel);
  return found == collectives_begun.end() ? 0 : found->second;
}

const OperationRecord* RankSnapshot::last_completed() const noexcept {
  const auto found = std::find_if(recent.rbegin(), recent.rend(),
                                  [](const OperationRecord& r) { return r.seconds && !r.failed; });
  return found == recent.rend() ? nullptr : &*found;
}

nlohmann::json to_json(const RankSnapshot& snapshot) {
  auto recent = nlohmann::json::array();
  for (const auto& r : snapshot.recent) {
    recent.push_back({{"channel", r.channel},
                      {"number", r.number ? nlohmann::json(*r.number) : nlohmann::json()},
                      {"what", r.what},
                      {"signature", r.signature},
                      {"begun_ago", r.begun_ago},
                      {"seconds", r.seconds ? nlohmann::json(*r.seconds) : nlohmann::json()},
                      {"failed", r.failed},
                      {"on_gpu", static_cast<int>(r.on_gpu)}});
  }
  auto begun = nlohmann::json::object();
  auto begun_in_groups = nlohmann::json::object();
  for (const auto& [channel, count] : snapshot.collectives_begun) {
    (snapshot.groups.contains(channel) ? begun_in_groups : begun)[channel] = count;
  }
  return {{"collectives_begun", std::move(begun)},
          {"group_collectives_begun", std::move(begun_in_groups)},
          {"phase", snapshot.phase},
          {"phase_ago", snapshot.phase_ago},
          {"recent", std::move(recent)}};
}

RankSnapshot snapshot_from_json(const nlohmann::json& json) {
  try {
    RankSnapshot snapshot;
    const auto& all_begun = json.at("collectives_begun").get_ref<const nlohmann::json::object_t&>();
    for (const auto& [channel, begun] : all_begun) {
      if (snapshot.collectives_begun.size() == kMaxChannels) break;
      snapshot.collectives_begun[shortened(channel)] = begun.get<std::uint64_t>();
    }
    const auto& in_groups =
        json.at("group_collectives_begun").get_ref<const nlohmann::json::object_t&>();
    for (const auto& [channel, begun] : in_groups) {
      if (snapshot.groups.size() == kMaxChannels) break;
      snapshot.collectives_begun[shortened(channel)] = begun.get<std::uint64_t>();
      snapshot.groups.insert(shortened(channel));
    }
    snapshot.phase = shortened(json.at("phase").get<std::string>());
    snapshot.phase_ago = json.at("phase_ago").get<double>();
    for (const auto& r : json.at("recent")) {
      if (snapshot.recent.size() == kMaxRecords) break;
      OperationRecord record;
      record.channel = shortened(r.at("channel").get<std::string>());
      if (!r.at("number").is_null()) record.number = r.at("number").get<std::uint64_t>();
      record.what = shortened(r.at("what").get<std::string>());
      record.signature = shortened(r.at("signature").get<std::string>());
      record.begun_ago = r.at("begun_ago").get<double>();
      if (!r.at("seconds").is_null()) record.seconds = r.at("seconds").get<double>();
      record.failed = r.at("failed").get<bool>();
      record.on_gpu = on_gpu_of(r.at("on_gpu").get<int>());
      snapshot.recent.push_back(std::move(record));
    }
    return snapshot;
  } catch (const nlohmann::json::exception& e) {
    throw RuntimeError(std::string("malformed status report from a rank: ") + e.what());
  }
}

FlightRecorder::Handle FlightRecorder::begin(std::optional<std::uint64_t> number, std::string what,
                                             std::string signature, const std::string& channel) {
  const std::lock_guard lock(mutex_);
  const std::string shortened_channel = shortened(channel, kMaxChannelText);
  if (number) collectives_begun_[shortened_channel] = *number + 1;
  if (entries_.size() >= kKept) {
    // Removes a finished operation first. An operation that is still running while another channel
    // is busy is the one that the hang analysis needs.
    const auto over = std::find_if(entries_.begin(), entries_.end(),
                                   [](const Entry& entry) { return entry.ended.has_value(); });
    if (over != entries_.end()) entries_.erase(over);
  }
  // Texts are shortened, so that a snapshot always fits into one message.
  entries_.push_back({next_, shortened_channel, number, shortened(std::move(what)),
                      shortened(std::move(signature)), Clock::now(), std::nullopt, false});
  return next_++;
}

bool FlightRecorder::add_group(const std::string& channel) {
  const std::string name = shortened(channel, kMaxChannelText);
  const std::lock_guard lock(mutex_);
  if (groups_.contains(name)) return false;
  if (groups_.size() == kMaxGroups) {
    throw UsageError(fmt::format(
        "this rank is in {} groups of some of the ranks, with their channels, and cannot be in one "
        "more, {}; groups live as long as the one that was split, so split it once, not repeatedly",
        kMaxGroups, name));
  }
  groups_.insert(name);
  collectives_begun_[name] = 0;
  return true;
}

FlightRecorder::Entry* FlightRecorder::find(Handle handle) {
  const auto entry = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Entry& e) { return e.handle == handle; });
  return entry == entries_.rend() ? nullptr : &*entry;
}

void FlightRecorder::end(Handle handle, bool failed) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(handle);
  if (entry == nullptr) return;
  entry->ended = Clock::now();
  entry->failed = failed;
}

void FlightRecorder::set_on_gpu(Handle handle, OnGpu state) {
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = find(handle)) entry->on_gpu = state;
}

void FlightRecorder::set_phase(std::string phase) {
  const std::lock_guard lock(mutex_);
  phase_ = shortened(std::move(phase));
  phase_since_ = Clock::now();
}

RankSnapshot FlightRecorder::snapshot() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  RankSnapshot snapshot;
  snapshot.collectives_begun = collectives_begun_;
  snapshot.groups = groups_;
  snapshot.phase = phase_;
  snapshot.phase_ago = seconds_between(phase_since_, now);
  // More than kKept entries remain only if more operations than that run at once.
  const auto newest =
      entries_.end() - static_cast<std::ptrdiff_t>(std::min(entries_.size(), kKept));
  for (auto entry = newest; entry != entries_.end(); ++entry) {
    const auto& e = *entry;
    OperationRecord record{e.channel, e.number, e.what,  e.signature, seconds_between(e.begun, now),
                           {},        e.failed, e.on_gpu};
    if (e.ended) record.seconds = seconds_between(e.begun, *e.ended);
    snapshot.recent.push_back(std::move(record));
  }
  return snapshot;
}

}  // namespace ddp::comm
