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
using Speech = watch::StallReports::Speech;

std::string in_words(Clock::duration length) {
  return rounded_duration(std::chrono::duration<double>(length).count());
}

// Returns "rank 2" or "ranks 2, 5, 7, ...".
std::string ranks_in_words(std::span<const std::size_t> some, std::span<const RankName> names) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> shown;
  for (const auto i : some.first(std::min(some.size(), kShown))) {
    shown.push_back(std::to_string(names[i].rank));
  }
  if (some.size() > kShown) shown.emplace_back("...");
  return (some.size() == 1 ? "rank " : "ranks ") + join(shown, ", ");
}

// The ranks that differ from those that only wait.
std::string notes(const Finding& finding, std::span<const RankName> names) {
  std::string text;
  const auto add = [&](std::span<const std::size_t> some, const char* one, const char* several) {
    if (some.empty()) return;
    text += "; " + ranks_in_words(some, names) + (some.size() == 1 ? one : several);
  };
  add(finding.failed, " has failed", " have failed");
  add(finding.finished, " has ended with 0", " have ended with 0");
  add(finding.uninterruptible, " waits for a device or a file system (state D)",
      " wait for a device or a file system (state D)");
  return text;
}

std::string stopped_text(const Finding& finding, std::span<const RankName> names,
                         std::string_view node) {
  std::string processes;
  for (const auto i : finding.stopped) processes += " " + std::to_string(names[i].task);
  const std::string place = node.empty() ? "" : " on " + std::string(node);
  return ranks_in_words(finding.stopped, names) + (finding.stopped.size() == 1 ? " has" : " have") +
         " been stopped for " + in_words(finding.length) + "; to continue, run kill -CONT" +
         processes + place;
}

}  // namespace

std::string stall_text(const Finding& finding, const watch::StallReports::Decision& decision,
                       std::span<const RankName> names, std::string_view node) {
  switch (decision.speech) {
    case Speech::nothing:
      break;
    case Speech::progress:
      return "the ranks make progress again, after " + in_words(decision.length);
    case Speech::finding:
      if (finding.kind == FindingKind::stopped) return stopped_text(finding, names, node);
      return "no rank has made progress for " + in_words(finding.length) +
             " (processor, files, TCP)" + notes(finding, names) + "; the step still runs";
  }
  return "";
}

}  // namespace ddp::guard
