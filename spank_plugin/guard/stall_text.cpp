// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/stall_text.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/duration.h"
#include "base/text.h"

namespace ddp::guard {
namespace {

using watch::Finding;
using watch::FindingKind;
using watch::RanksReport;
using Speech = watch::StallReports::Speech;

std::string in_words(Clock::duration length) {
  return rounded_duration(std::chrono::duration<double>(length).count());
}

constexpr std::size_t kShown = 8;

// Returns "rank 2" or "ranks 2, 5, 7, ...".
std::string ranks_in_words(std::string_view noun, std::span<const std::uint32_t> ranks) {
  std::vector<std::string> shown;
  for (const auto rank : ranks.first(std::min(ranks.size(), kShown))) {
    shown.push_back(std::to_string(rank));
  }
  if (ranks.size() > kShown) shown.emplace_back("...");
  return std::string(noun) + (ranks.size() == 1 ? " " : "s ") + join(shown, ", ");
}

std::string ranks_in_words(std::string_view noun, std::span<const std::size_t> some,
                           const RanksReport& ranks) {
  std::vector<std::uint32_t> numbers;
  for (const auto i : some) numbers.push_back(ranks.facts[i].rank);
  return ranks_in_words(noun, numbers);
}

// Ranks in too many groups are grouped by the kernel's functions alone.
std::vector<watch::Waiting> few_groups(std::span<const watch::RankWait> waits) {
  constexpr std::size_t kMaxGroups = 4;
  auto groups = watch::group_by_wait(waits);
  if (groups.size() > kMaxGroups) {
    std::vector<watch::RankWait> channels(waits.begin(), waits.end());
    for (auto& wait : channels) wait.place.clear();
    groups = watch::group_by_wait(channels);
  }
  if (groups.size() > kMaxGroups) groups.clear();
  return groups;
}

// What the ranks wait for: the odd ones first.
std::string waits(std::span<const watch::RankWait> all) {
  const auto groups = few_groups(all);
  if (groups.empty()) return "";
  std::vector<std::string> texts;
  for (const auto& group : groups) {
    const std::size_t count = group.ranks.size();
    const bool are_others = &group == &groups.back() && groups.size() > 1 && count > 1;
    const bool are_all = count == all.size() && count > 1;
    const std::string subject = are_others ? "the others"
                                : are_all  ? "all"
                                           : ranks_in_words("rank", group.ranks);
    texts.push_back(subject + (count == 1 ? " waits " : " wait ") + group.how);
  }
  return ": " + join(texts, ", ");
}

// The ranks that differ from those that only wait.
std::string notes(const Finding& finding, std::string_view noun, const RanksReport& ranks) {
  std::string text;
  const auto add = [&](std::span<const std::size_t> some, const char* one, const char* several) {
    if (some.empty()) return;
    text += "; " + ranks_in_words(noun, some, ranks) + (some.size() == 1 ? one : several);
  };
  add(finding.failed, " has failed", " have failed");
  add(finding.finished, " has ended with 0", " have ended with 0");
  add(finding.uninterruptible, " cannot be interrupted (state D)",
      " cannot be interrupted (state D)");
  return text;
}

// Returns "kill -CONT 7 8 on node1, kill -CONT 9 on node2".
std::string continuing_commands(std::span<const std::size_t> stopped, const RanksReport& ranks) {
  std::string text;
  std::string node;  // of the last command
  for (const auto i : stopped) {
    const auto& facts = ranks.facts[i];
    if (text.empty() || facts.node != node) {
      if (!text.empty()) text += (node.empty() ? "" : " on " + node) + ", ";
      text += "kill -CONT";
      node = facts.node;
    }
    text += " " + std::to_string(facts.stopped);
  }
  return text + (node.empty() ? "" : " on " + node);
}

std::string stopped_text(const Finding& finding, std::string_view noun, const RanksReport& ranks,
                         bool ends) {
  const bool is_one = finding.stopped.size() == 1;
  const bool is_whole = std::ranges::all_of(finding.stopped, [&ranks](std::size_t i) {
    return ranks.facts[i].stopped == ranks.facts[i].task;
  });
  const char* which = is_whole ? "" : is_one ? "a process of " : "processes of ";
  std::string text = which + ranks_in_words(noun, finding.stopped, ranks) +
                     (is_one ? " has" : " have") + std::string(kStopped) +
                     in_words(finding.length) + notes(finding, noun, ranks);
  if (ends) return text + std::string(kEndsStep);
  if (finding.stopped.size() > kShown) return text;
  return text + "; to continue, run " + continuing_commands(finding.stopped, ranks);
}

}  // namespace

std::string stall_text(const Finding& finding, const watch::StallReports::Decision& decision,
                       std::string_view noun, const RanksReport& ranks, bool ends) {
  switch (decision.speech) {
    case Speech::nothing:
      break;
    case Speech::progress:
      return std::string(kProgressAgain) + ", after " + in_words(decision.length);
    case Speech::finding:
      if (finding.kind == FindingKind::stopped) return stopped_text(finding, noun, ranks, ends);
      return std::string(kNoProgress) + in_words(finding.length) + " (processor, files, TCP)" +
             waits(ranks.waits) + notes(finding, noun, ranks) +
             std::string(ends ? kEndsStep : kStillRuns);
  }
  return "";
}

}  // namespace ddp::guard
