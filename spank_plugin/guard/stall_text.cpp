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

// Returns "rank 2" or "ranks 2, 5, 7, ...".
std::string ranks_in_words(std::span<const std::size_t> some, std::span<const RankFacts> facts) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> shown;
  for (const auto i : some.first(std::min(some.size(), kShown))) {
    shown.push_back(std::to_string(facts[i].rank));
  }
  if (some.size() > kShown) shown.emplace_back("...");
  return (some.size() == 1 ? "rank " : "ranks ") + join(shown, ", ");
}

// What the ranks wait for: the odd ones first.
std::string waits(std::span<const RankFacts> facts) {
  constexpr std::size_t kMaxGroups = 4;
  std::vector<std::string> channels;
  for (const auto& rank : facts) channels.push_back(rank.wait_channel);
  const auto groups = watch::group_by_wait(channels);
  if (groups.empty() || groups.size() > kMaxGroups) return "";
  std::vector<std::string> texts;
  for (const auto& group : groups) {
    const std::size_t count = group.ranks.size();
    const bool are_others = &group == &groups.back() && groups.size() > 1 && count > 1;
    const bool are_all = count == facts.size() && count > 1;
    const std::string subject = are_others ? "the others"
                                : are_all  ? "all"
                                           : ranks_in_words(group.ranks, facts);
    texts.push_back(subject + (group.ranks.size() == 1 ? " waits for " : " wait for ") +
                    group.what);
  }
  return ": " + join(texts, ", ");
}

// The ranks that differ from those that only wait.
std::string notes(const Finding& finding, std::span<const RankFacts> facts) {
  std::string text;
  const auto add = [&](std::span<const std::size_t> some, const char* one, const char* several) {
    if (some.empty()) return;
    text += "; " + ranks_in_words(some, facts) + (some.size() == 1 ? one : several);
  };
  add(finding.failed, " has failed", " have failed");
  add(finding.finished, " has ended with 0", " have ended with 0");
  add(finding.uninterruptible, " waits for a device or a file system (state D)",
      " wait for a device or a file system (state D)");
  return text;
}

std::string stopped_text(const Finding& finding, std::span<const RankFacts> facts,
                         std::string_view node) {
  std::string processes;
  for (const auto i : finding.stopped) processes += " " + std::to_string(facts[i].task);
  const std::string place = node.empty() ? "" : " on " + std::string(node);
  return ranks_in_words(finding.stopped, facts) + (finding.stopped.size() == 1 ? " has" : " have") +
         std::string(kStopped) + in_words(finding.length) + "; to continue, run kill -CONT" +
         processes + place;
}

}  // namespace

std::string stall_text(const Finding& finding, const watch::StallReports::Decision& decision,
                       std::span<const RankFacts> facts, std::string_view node) {
  switch (decision.speech) {
    case Speech::nothing:
      break;
    case Speech::progress:
      return std::string(kProgressAgain) + ", after " + in_words(decision.length);
    case Speech::finding:
      if (finding.kind == FindingKind::stopped) return stopped_text(finding, facts, node);
      return std::string(kNoProgress) + in_words(finding.length) + " (processor, files, TCP)" +
             waits(facts) + notes(finding, facts) + std::string(kStillRuns);
  }
  return "";
}

}  // namespace ddp::guard
