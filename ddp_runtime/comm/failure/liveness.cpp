// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace ddp::comm {
namespace {

// "rank 2 (node3, process 17)", "ranks 4, 5 and 6 on node2", "ranks 0, 1, 2, 3 and 60 more on n1".
std::string lost_ranks(std::span<const Loss* const> losses) {
  constexpr std::size_t kMax = 8;
  const Loss& first = *losses.front();
  if (losses.size() == 1) return fmt::format("rank {} ({})", first.rank, first.who);
  std::string text = "ranks ";
  const std::size_t shown = std::min(losses.size(), kMax);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == losses.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", losses[i]->rank);
  }
  if (shown < losses.size()) text += fmt::format(" and {} more", losses.size() - shown);
  return text + " on " + node_of(first.who);
}

std::string what_happened(LossKind kind, bool several, std::chrono::milliseconds silence) {
  const double seconds = std::chrono::duration<double>(silence).count();
  switch (kind) {
    case LossKind::killed:
      return fmt::format(
          "exited unexpectedly: {} killed or crashed; check {} last output lines, the kernel log "
          "(out of memory?) and whether the job was canceled",
          several ? "they were" : "it was", several ? "their" : "its");
    case LossKind::stopped:
      return fmt::format(
          "{} been silent for {:.3g} s, but the machine answers: {} stopped (SIGSTOP, a debugger, "
          "a frozen container, a core dump being written)",
          several ? "have" : "has", seconds, several ? "they are" : "it is");
    case LossKind::unreachable:
      break;
  }
  return fmt::format(
      "{} been silent for {:.3g} s, and the machine does not answer: it is down, hangs, is cut off "
      "from the network, or its large packets are lost there (ddp-check net tells)",
      several ? "have" : "has", seconds);
}

}  // namespace

const char* to_string(LossKind kind) {
  switch (kind) {
    case LossKind::killed:
      return "killed";
    case LossKind::stopped:
      return "stopped";
    case LossKind::unreachable:
      break;
  }
  return "unreachable";
}

LivenessLimits limits_for(std::chrono::milliseconds silence) {
  LivenessLimits limits;
  limits.silence = silence;
  limits.heartbeat = std::min(limits.heartbeat, silence / 8);
  limits.reconnect = std::min(limits.reconnect, silence * 3 / 8);
  limits.exit = std::max(limits.exit, silence + std::chrono::seconds(30));  // time for a verdict
  return limits;
}

LivenessLimits scaled(LivenessLimits limits, int ranks) {
  constexpr std::chrono::microseconds kPerRank{500};
  const auto wanted = std::chrono::duration_cast<std::chrono::milliseconds>(ranks * kPerRank);
  limits.heartbeat = std::max(limits.heartbeat, std::min(wanted, limits.silence / 4));
  return limits;
}

std::vector<Loss> find_lost(std::span<const SignsOfLife> ranks, bool stalled,
                            const LivenessLimits& limits) {
  std::vector<Loss> lost;
  const bool any = std::any_of(ranks.begin(), ranks.end(), [&](const SignsOfLife& signs) {
    return signs.silent >= limits.silence;
  });
  if (!any || !stalled) return lost;
  for (const auto& signs : ranks) {
    if (signs.silent < limits.silence - 2 * limits.heartbeat) continue;
    lost.push_back(
        {signs.rank, signs.who, signs.acknowledges ? LossKind::stopped : LossKind::unreachable});
  }
  return lost;
}

std::string describe(std::span<const Loss> losses, std::chrono::milliseconds silence) {
  std::map<std::pair<std::string, LossKind>, std::vector<const Loss*>> groups;
  for (const auto& loss : losses) groups[{node_of(loss.who), loss.kind}].push_back(&loss);
  std::string text;
  for (auto& [key, group] : groups) {
    std::sort(group.begin(), group.end(),
              [](const Loss* a, const Loss* b) { return a->rank < b->rank; });
    if (!text.empty()) text += "; ";
    text += lost_ranks(group) + " " + what_happened(key.second, group.size() > 1, silence);
  }
  return text;
}

std::string node_of(const std::string& who) {
  return who.substr(0, who.find(','));
}

}  // namespace ddp::comm
