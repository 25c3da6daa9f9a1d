// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/thinning.h"

#include <string>
#include <utility>

namespace ddp::elastic {
namespace {

std::string name_of_entry(const nlohmann::json& entry) {
  for (const char* key : {"event", "action"}) {
    if (const auto at = entry.find(key); at != entry.end() && at->is_string()) return *at;
  }
  return {};
}

}  // namespace

std::vector<nlohmann::json> Thinning::pass(nlohmann::json entry, Seconds now) {
  const auto name = name_of_entry(entry);
  if (name == "progress") {
    progress_ = std::move(entry);
    return due(now);
  }
  if (name == "kept") {
    kept_ = std::move(entry);
    return due(now);
  }
  std::vector<nlohmann::json> out;
  // Both are older than what follows.
  for (auto* waiting : {&progress_, &kept_}) {
    if (*waiting) out.push_back(*std::exchange(*waiting, std::nullopt));
  }
  if (name == "start") kept_written_ = now - kKeptEvery;
  out.push_back(std::move(entry));
  return out;
}

std::vector<nlohmann::json> Thinning::due(Seconds now) {
  std::vector<nlohmann::json> out;
  if (progress_ && now - progress_written_ >= kProgressEvery) {
    progress_written_ = now;
    out.push_back(*std::exchange(progress_, std::nullopt));
  }
  if (kept_ && now - kept_written_ >= kKeptEvery) {
    kept_written_ = now;
    out.push_back(*std::exchange(kept_, std::nullopt));
  }
  return out;
}

}  // namespace ddp::elastic
