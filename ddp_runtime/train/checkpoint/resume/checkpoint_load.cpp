// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/resume/checkpoint_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::train {
namespace {

using nlohmann::json;

// The results of loading on one rank.
constexpr const char* kLoaded = "loaded";
constexpr const char* kNotSeen = "not seen";  // another checkpoint, or none, is at the path
constexpr const char* kDamaged = "damaged";
constexpr const char* kUnreadable = "unreadable";
constexpr const char* kFailed = "failed";

struct LoadOutcome {
  std::string kind = kLoaded;
  std::string text = {};
};

// Paths may have bytes that are not UTF-8.
std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

LoadOutcome load_rows_from(const json& order, TrainingState& state) {
  std::optional<ckpt::Checkpoint> checkpoint;
  try {
    checkpoint = ckpt::Checkpoint::open(order.at("path").get<std::string>());
    if (checkpoint->manifest().crc32c != order.at("crc32c").get<std::uint32_t>()) return {kNotSeen};
  } catch (const std::exception& e) {
    return {kNotSeen, e.what()};
  }
  try {
    state.load_rows(*checkpoint);
  } catch (const ckpt::DamagedError& e) {
    return {kDamaged, e.what()};
  } catch (const ckpt::UnreadableError& e) {
    return {kUnreadable, e.what()};
  } catch (const std::exception& e) {
    return {kFailed, e.what()};
  }
  return {};
}

// Collective. One for each rank.
std::vector<LoadOutcome> exchange(comm::Group& group, const LoadOutcome& mine) {
  std::vector<LoadOutcome> all;
  for (const auto& text : group.all_gather_text(dumped({mine.kind, mine.text}))) {
    const auto outcome = json::parse(text);
    all.push_back({outcome.at(0).get<std::string>(), outcome.at(1).get<std::string>()});
  }
  return all;
}

bool is_failure(const LoadOutcome& outcome) {
  return outcome.kind != kLoaded && outcome.kind != kNotSeen;
}

bool is_unseen(const LoadOutcome& outcome) {
  return outcome.kind == kNotSeen;
}

[[noreturn]] void throw_failure(const LoadOutcome& outcome, std::ptrdiff_t rank) {
  const auto text = fmt::format("{} (read by rank {})", outcome.text, rank);
  if (outcome.kind == kDamaged) throw ckpt::DamagedError(text);
  if (outcome.kind == kUnreadable) throw ckpt::UnreadableError(text);
  throw RuntimeError(text);
}

}  // namespace

void load_on_all(comm::Group& group, TrainingState& state, const ckpt::Checkpoint& checkpoint) {
  if (!state.is_divided() || group.size() == 1) return state.load(checkpoint);
  const json order = {{"path", checkpoint.path().string()},
                      {"crc32c", checkpoint.manifest().crc32c}};
  group.broadcast_text(dumped({{"load", order}}), 0);
  std::exception_ptr mine;
  try {
    state.load(checkpoint);
  } catch (...) {
    mine = std::current_exception();
  }
  const auto all = exchange(group, mine ? LoadOutcome{kFailed} : LoadOutcome{});
  if (mine) std::rethrow_exception(mine);
  const auto failed = std::ranges::find_if(all, is_failure);
  if (failed != all.end()) throw_failure(*failed, failed - all.begin());
  if (std::ranges::any_of(all, is_unseen)) state.send_rows(&checkpoint);
}

void end_loading(comm::Group& group, const std::string& text) {
  group.broadcast_text(text.empty() ? text : dumped({{"text", text}}), 0);
}

std::string follow_leader(comm::Group& group, TrainingState& state) {
  for (;;) {
    const auto text = group.broadcast_text({}, 0);
    if (text.empty()) return text;
    const auto said = json::parse(text);
    if (said.contains("text")) return said.at("text").get<std::string>();
    const auto all = exchange(group, load_rows_from(said.at("load"), state));
    const bool failed = std::ranges::any_of(all, is_failure);
    if (!failed && std::ranges::any_of(all, is_unseen)) state.send_rows(nullptr);
  }
}

}  // namespace ddp::train
