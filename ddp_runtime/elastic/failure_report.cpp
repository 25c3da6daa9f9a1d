// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

namespace ddp::elastic {

FailureReport::FailureReport(std::vector<std::string> nodes, int ranks_per_node)
    : nodes_(std::move(nodes)), ranks_per_node_(ranks_per_node) {}

void FailureReport::add(const RankEnded& ended) {
  ended_.push_back(ended);
}

void FailureReport::add(const Told& told) {
  if (!told_) told_ = told;
}

void FailureReport::add_missing(int rank, Seconds seconds) {
  missing_.emplace(rank, seconds);
}

void FailureReport::add_silent(int rank, Seconds seconds) {
  silent_.emplace(rank, seconds);
}

void FailureReport::add_lost(const std::string& node, const std::string& why) {
  lost_.emplace(node, why);
}

void FailureReport::add_launcher(const std::string& text) {
  launcher_ = text;
}

std::string FailureReport::node_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank / ranks_per_node_);
  return rank >= 0 && index < nodes_.size() ? nodes_[index] : "";
}

// The program knows best whose failure it was. Otherwise it is that of the ranks that were killed
// like the first one.
std::set<int> FailureReport::culprits() const {
  std::set<int> ranks;
  for (const auto& [rank, seconds] : missing_) ranks.insert(rank);
  for (const auto& [rank, seconds] : silent_) ranks.insert(rank);
  if (told_ && !node_of(told_->rank).empty()) ranks.insert(told_->rank);
  if (!ranks.empty()) return ranks;
  // SLURM kills a whole step, agents included, when an MPI process or a launch fails. Then it is
  // the fault of none of those that ended with their agents.
  const bool step_was_killed =
      std::ranges::count_if(ended_, [](const auto& ended) { return ended.with_its_agent; }) > 1;
  for (const bool with_agent : {false, true}) {
    if (with_agent && step_was_killed) break;
    const auto first = std::ranges::find_if(ended_, [with_agent](const auto& ended) {
      return ended.signal != 0 && ended.with_its_agent == with_agent;
    });
    if (first == ended_.end()) continue;
    for (const auto& ended : ended_) {
      if (ended.signal == first->signal && ended.with_its_agent == with_agent) {
        ranks.insert(ended.rank);
      }
    }
    return ranks;
  }
  const auto first =
      std::ranges::find_if(ended_, [](const auto& ended) { return !ended.with_its_agent; });
  if (first != ended_.end()) return {first->rank};
  return {};
}

std::string FailureReport::why(int rank) const {
  if (const auto at = missing_.find(rank); at != missing_.end()) {
    return fmt::format("rank {} has not started within {:g} s", rank, at->second);
  }
  if (const auto at = silent_.find(rank); at != silent_.end()) {
    return fmt::format("rank {} silent for {:g} s", rank, at->second);
  }
  const auto ended =
      std::ranges::find_if(ended_, [rank](const auto& one) { return one.rank == rank; });
  if (ended != ended_.end() && ended->signal != 0) {
    return fmt::format("rank {}: {}", rank, describe(*ended));
  }
  if (told_ && told_->rank == rank) {
    const auto who = fmt::format("rank {}", rank);
    return told_->text.starts_with(who) ? told_->text : fmt::format("{}: {}", who, told_->text);
  }
  if (ended != ended_.end()) return fmt::format("rank {}: {}", rank, describe(*ended));
  return fmt::format("rank {} failed", rank);
}

std::vector<FailureReport::Blamed> FailureReport::blamed() const {
  const auto ranks = lost_.empty() ? culprits() : std::set<int>{};
  std::vector<Blamed> blamed;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto& node = nodes_[i];
    if (const auto at = lost_.find(node); at != lost_.end()) {
      blamed.push_back({node, Kind::node, at->second});
      continue;
    }
    const int first = static_cast<int>(i) * ranks_per_node_;
    const auto from = ranks.lower_bound(first);
    const auto to = ranks.lower_bound(first + ranks_per_node_);
    if (from == to) continue;
    const auto count = std::distance(from, to);
    if (count > 1 && count == ranks_per_node_ && nodes_.size() > 1) {
      blamed.push_back({node, Kind::node, fmt::format("all {} ranks, {}", count, why(*from))});
    } else {
      blamed.push_back({node, Kind::rank, why(*from)});
    }
  }
  return blamed;
}

std::string FailureReport::text() const {
  std::string text;
  for (const auto& one : blamed()) {
    text += (text.empty() ? "" : "; ") + fmt::format("{}: {}", one.node, one.why);
  }
  if (!text.empty()) return text;
  if (told_) return told_->text;
  if (!ended_.empty()) return "its processes were killed together with their agents";
  return launcher_.empty() ? "it ended without a word" : launcher_;
}

// SIGKILL and SIGTERM come from outside of the program, or from a lack of memory, which may pass.
std::string FailureReport::signature() const {
  if (!lost_.empty() || !silent_.empty() || !missing_.empty()) return "";
  const auto ranks = culprits();
  if (ranks.empty()) return told_ ? told_->text : (ended_.empty() ? launcher_ : "");
  const auto ended =
      std::ranges::find_if(ended_, [&](const auto& one) { return one.rank == *ranks.begin(); });
  if (ended != ended_.end() && ended->signal != 0) {
    return ended->signal == SIGKILL || ended->signal == SIGTERM ? "" : describe(*ended);
  }
  if (told_) return told_->text;
  return ended == ended_.end() ? "" : describe(*ended);
}

std::string describe(const RankEnded& ended) {
  if (ended.signal == 0) return fmt::format("exit code {}", ended.code);
  const char* name = sigdescr_np(ended.signal);
  return fmt::format("signal {} ({})", ended.signal, name == nullptr ? "unknown" : name);
}

}  // namespace ddp::elastic
