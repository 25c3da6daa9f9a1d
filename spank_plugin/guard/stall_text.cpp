// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/stall_text.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/duration.h"
#include "base/text.h"
#include "spank_plugin/watch/wait_channel.h"

namespace ddp::guard {
namespace {

using watch::Finding;
using watch::FindingKind;
using Speech = watch::StallReports::Speech;

std::string in_words(Clock::duration length) {
  return rounded_duration(std::chrono::duration<double>(length).count());
}

constexpr std::size_t kShown = 8;

// Returns "rank 2" or "ranks 2, 5, 7, ...".
std::string ranks_in_words(std::span<const std::size_t> some, const NamedRanks& ranks) {
  std::vector<std::string> shown;
  for (const auto i : some.first(std::min(some.size(), kShown))) {
    shown.push_back(std::to_string(ranks.facts[i].rank));
  }
  if (some.size() > kShown) shown.emplace_back("...");
  return std::string(ranks.noun) + (some.size() == 1 ? " " : "s ") + join(shown, ", ");
}

// What the ranks wait for: the odd ones first.
std::string waits(const NamedRanks& ranks) {
  constexpr std::size_t kMaxGroups = 4;
  std::vector<std::string> channels;
  for (const auto& rank : ranks.facts) channels.push_back(rank.wait_channel);
  const auto groups = watch::group_by_wait(channels);
  if (groups.empty() || groups.size() > kMaxGroups) return "";
  std::vector<std::string> texts;
  for (const auto& group : groups) {
    const std::size_t count = group.ranks.size();
    const bool are_others = &group == &groups.back() && groups.size() > 1 && count > 1;
    const bool are_all = count == ranks.facts.size() && count > 1;
    const std::string subject = are_others ? "the others"
                                : are_all  ? "all"
                                           : ranks_in_words(group.ranks, ranks);
    texts.push_back(subject + (count == 1 ? " waits for " : " wait for ") + group.what);
  }
  return ": " + join(texts, ", ");
}

// The ranks that differ from those that only wait.
std::string notes(const Finding& finding, const NamedRanks& ranks) {
  std::string text;
  const auto add = [&](std::span<const std::size_t> some, const char* one, const char* several) {
    if (some.empty()) return;
    text += "; " + ranks_in_words(some, ranks) + (some.size() == 1 ? one : several);
  };
  add(finding.failed, " has failed", " have failed");
  add(finding.finished, " has ended with 0", " have ended with 0");
  add(finding.uninterruptible, " cannot be interrupted (state D)",
      " cannot be interrupted (state D)");
  return text;
}

std::string stopped_text(const Finding& finding, const NamedRanks& ranks) {
  const bool is_one = finding.stopped.size() == 1;
  const bool is_whole = std::ranges::all_of(finding.stopped, [&ranks](std::size_t i) {
    return ranks.facts[i].stopped == ranks.facts[i].task;
  });
  const char* which = is_whole ? "" : is_one ? "a process of " : "processes of ";
  std::string text = which + ranks_in_words(finding.stopped, ranks) + (is_one ? " has" : " have") +
                     std::string(kStopped) + in_words(finding.length) + notes(finding, ranks);
  if (finding.stopped.size() > kShown) return text;
  text += "; to continue, run kill -CONT";
  for (const auto i : finding.stopped) text += " " + std::to_string(ranks.facts[i].stopped);
  return text + (ranks.node.empty() ? "" : " on " + std::string(ranks.node));
}

}  // namespace

std::string stall_text(const Finding& finding, const watch::StallReports::Decision& decision,
                       const NamedRanks& ranks) {
  switch (decision.speech) {
    case Speech::nothing:
      break;
    case Speech::progress:
      return std::string(kProgressAgain) + ", after " + in_words(decision.length);
    case Speech::finding:
      if (finding.kind == FindingKind::stopped) return stopped_text(finding, ranks);
      return std::string(kNoProgress) + in_words(finding.length) + " (processor, files, TCP)" +
             waits(ranks) + notes(finding, ranks) + std::string(kStillRuns);
  }
  return "";
}

}  // namespace ddp::guard
