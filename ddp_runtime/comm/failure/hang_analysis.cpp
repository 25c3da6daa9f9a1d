// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/hang_analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/host.h"

namespace ddp::comm {
namespace {

using Witnesses = std::vector<const RankStatus*>;

std::string name_of(const RankStatus& status) {
  if (status.who.empty()) return fmt::format("rank {}", status.rank);
  return fmt::format("rank {} ({})", status.rank, status.who);
}

// "rank 2 (node3, process 17)", "ranks 2 and 5", "ranks 0, 1, 2, 3 and 60 more".
std::string names_of(const Witnesses& statuses) {
  constexpr std::size_t kMax = 8;
  if (statuses.size() == 1) return name_of(*statuses.front());
  std::string text = "ranks ";
  const std::size_t shown = std::min(statuses.size(), kMax);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == statuses.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", statuses[i]->rank);
  }
  if (shown < statuses.size()) text += fmt::format(" and {} more", statuses.size() - shown);
  return text;
}

std::string state_of(const RankSnapshot& snapshot, std::string_view subject) {
  std::string text;
  if (const auto* last = snapshot.last_completed()) {
    text = fmt::format("{} last completed {} {:.0f} s ago", subject, last->what,
                       last->begun_ago - last->seconds.value_or(0));
  } else {
    text = fmt::format("{} has completed no collective yet", subject);
  }
  if (!snapshot.phase.empty()) {
    text += fmt::format(" and has been at '{}' for {:.0f} s", snapshot.phase, snapshot.phase_ago);
  }
  return text;
}

Failure blame(const RankStatus& culprit, FailureKind kind, std::string text) {
  // Another rank reports the failure, because the culprit does not know that it is the cause, or
  // cannot report it.
  return {.rank = culprit.rank, .text = std::move(text), .lost = true, .kind = kind};
}

std::optional<Failure> find_silent(std::span<const RankStatus> statuses, const Failure& report) {
  Witnesses silent;
  for (const auto& w : statuses) {
    if (!w.snapshot) silent.push_back(&w);
  }
  if (silent.empty()) return std::nullopt;
  return blame(*silent.front(), FailureKind::silent,
               fmt::format("{} {} not answer: stopped, hung or cut off from the network; {}",
                           names_of(silent), silent.size() == 1 ? "does" : "do", report.text));
}

// All ranks, unless only some have the channel.
Witnesses members_of(const std::string& channel, std::span<const RankStatus> statuses) {
  Witnesses all;
  Witnesses members;
  for (const auto& w : statuses) {
    all.push_back(&w);
    if (w.snapshot->groups.contains(channel)) members.push_back(&w);
  }
  return members.empty() ? all : members;
}

// The ranks that have begun the fewest collectives of a channel and are not waiting in one of them.
Witnesses behind_in(const std::string& channel, std::span<const RankStatus> statuses) {
  const Witnesses members = members_of(channel, statuses);
  std::uint64_t most = 0;
  std::uint64_t fewest = ~std::uint64_t{0};
  for (const auto* w : members) {
    most = std::max(most, w->snapshot->begun_in(channel));
    fewest = std::min(fewest, w->snapshot->begun_in(channel));
  }
  Witnesses behind;
  for (const auto* w : members) {
    const bool fewer = w->snapshot->begun_in(channel) == fewest && fewest < most;
    if (fewer && w->snapshot->stuck_in(channel) == nullptr) behind.push_back(w);
  }
  return behind;
}

// "the collective", unless it is one of a group of some ranks, of which the waiting rank that
// reports may not be one.
std::string name_of_collective(const std::string& channel, std::span<const RankStatus> statuses) {
  for (const auto& w : statuses) {
    const auto* stuck = w.snapshot->stuck_in(channel);
    if (stuck != nullptr && w.snapshot->groups.contains(channel)) return stuck->what;
  }
  return "the collective";
}

std::set<std::string> channels_of(std::span<const RankStatus> statuses) {
  std::set<std::string> channels;
  for (const auto& w : statuses) {
    for (const auto& [channel, begun] : w.snapshot->collectives_begun) channels.insert(channel);
  }
  return channels;
}

// The ranks that are behind in some channel and are not waiting in any collective.
std::optional<Failure> find_absent(std::span<const RankStatus> statuses, const Failure& report) {
  Witnesses absent;
  std::string collective;
  for (const auto& channel : channels_of(statuses)) {
    absent = behind_in(channel, statuses);
    std::erase_if(absent, [](const RankStatus* w) { return !w->snapshot->stuck_in().empty(); });
    collective = name_of_collective(channel, statuses);
    if (!absent.empty()) break;
  }
  if (absent.empty()) return std::nullopt;
  const RankStatus& first = *absent.front();
  const std::string subject = absent.size() == 1 ? "it" : fmt::format("rank {}", first.rank);
  return blame(first, FailureKind::absent,
               fmt::format("{} did not join {}: {}; {}", names_of(absent), collective,
                           state_of(*first.snapshot, subject), report.text));
}

// The launched operation that earlier work of the program holds. A rank whose GPU also runs a
// collective of another group has none: that one may be what its stream waits for.
const OperationRecord* held_operation(const RankSnapshot& snapshot) {
  const OperationRecord* held = nullptr;
  for (const auto* stuck : snapshot.stuck_in()) {
    if (stuck->on_gpu == OnGpu::running) return nullptr;
    if (stuck->on_gpu == OnGpu::held && held == nullptr) held = stuck;
  }
  return held;
}

// The ranks whose GPUs have not started a collective, although it was launched.
std::optional<Failure> find_busy_gpu(std::span<const RankStatus> statuses, const Failure& report) {
  Witnesses busy;
  for (const auto& w : statuses) {
    if (held_operation(*w.snapshot) != nullptr) busy.push_back(&w);
  }
  if (busy.empty()) return std::nullopt;
  const RankStatus& first = *busy.front();
  const std::string subject = busy.size() == 1 ? "it" : fmt::format("rank {}", first.rank);
  return blame(first, FailureKind::absent,
               fmt::format("{} launched {}, but {} still busy with earlier work of the program, "
                           "such as a kernel that does not end: {}; {}",
                           names_of(busy), held_operation(*first.snapshot)->what,
                           busy.size() == 1 ? "its GPU is" : "their GPUs are",
                           state_of(*first.snapshot, subject), report.text));
}

// Whether a rank waits only for messages, which have no numbers.
bool waits_for_message(std::span<const RankStatus> statuses, int rank) {
  for (const auto& w : statuses) {
    if (w.rank != rank) continue;
    const auto stuck = w.snapshot->stuck_in();
    return !stuck.empty() && std::all_of(stuck.begin(), stuck.end(),
                                         [](const auto* record) { return !record->number; });
  }
  return false;
}

// One rank's wait for another, which waits elsewhere.
struct Wait {
  const RankStatus* who;
  const OperationRecord* in;
  const RankStatus* for_whom;
};

// Returns nullopt if no rank is behind in any collective in which this one waits.
std::optional<Wait> wait_of(const RankStatus& rank, std::span<const RankStatus> statuses) {
  for (const auto* stuck : rank.snapshot->stuck_in()) {
    const Witnesses behind = behind_in(stuck->channel, statuses);
    if (!behind.empty()) return Wait{&rank, stuck, behind.front()};
  }
  return std::nullopt;
}

// Follows the waits, from any rank, until one is met again. Returns the waits of the circle; empty
// if there is none.
std::vector<Wait> find_circle(std::span<const RankStatus> statuses) {
  for (const auto& start : statuses) {
    std::vector<Wait> waits;
    const RankStatus* rank = &start;
    const auto is_at = [&](const Wait& wait) { return wait.who == rank; };
    while (true) {
      const auto met = std::find_if(waits.begin(), waits.end(), is_at);
      if (met != waits.end()) {
        waits.erase(waits.begin(), met);
        return waits;
      }
      const auto wait = wait_of(*rank, statuses);
      if (!wait) break;
      waits.push_back(*wait);
      rank = wait->for_whom;
    }
  }
  return {};
}

// Finds ranks that wait for each other in groups of some of the ranks. Each of them would continue
// if the next one did, so none of them is more to blame than another.
std::optional<Failure> find_circle_of_groups(std::span<const RankStatus> statuses) {
  constexpr std::size_t kMax = 8;
  const std::vector<Wait> circle = find_circle(statuses);
  const auto in_group = [](const Wait& wait) {
    return wait.who->snapshot->groups.contains(wait.in->channel);
  };
  if (std::none_of(circle.begin(), circle.end(), in_group)) return std::nullopt;
  std::string text = "ranks wait for each other in different groups: ";
  for (std::size_t i = 0; i < std::min(circle.size(), kMax); ++i) {
    const auto& [who, in, for_whom] = circle[i];
    text += fmt::format("{}{} waits in {} for rank {}", i == 0 ? "" : ", ", name_of(*who), in->what,
                        for_whom->rank);
  }
  if (circle.size() > kMax) text += fmt::format(", and {} more", circle.size() - kMax);
  return blame(*circle.front().who, FailureKind::absent,
               text +
                   "; one of them left out a collective, or the ranks call those of different "
                   "groups in orders that do not fit together");
}

// The smaller group is more likely to be wrong; of two groups of the same size, the one without
// rank 0.
bool more_suspicious(const Witnesses& a, const Witnesses& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  return a.front()->rank > b.front()->rank;
}

// Finds ranks that wait for each other in different channels: one of them skipped a collective of
// one channel and now waits in the next collective.
std::optional<Failure> find_elsewhere(std::span<const RankStatus> statuses, const Failure& report) {
  std::map<std::string, Witnesses> behind;
  for (const auto& channel : channels_of(statuses)) {
    auto ranks = behind_in(channel, statuses);
    if (!ranks.empty()) behind[channel] = std::move(ranks);
  }
  const auto worst = std::min_element(
      behind.begin(), behind.end(),
      [](const auto& a, const auto& b) { return more_suspicious(a.second, b.second); });
  if (worst == behind.end()) return std::nullopt;
  const RankStatus& first = *worst->second.front();
  return blame(first, FailureKind::absent,
               fmt::format("{} skipped a collective in which the others wait, and rank {} "
                           "waits in {}; all must run the same layers in the same order; {}",
                           names_of(worst->second), first.rank,
                           first.snapshot->stuck_in().front()->what, report.text));
}

}  // namespace

std::optional<Failure> find_disagreement(std::span<const RankStatus> statuses) {
  // One rank's call. `calls` groups them by channel and number, and then by signature.
  struct Call {
    const RankStatus* by;
    const OperationRecord* what;
  };
  using Place = std::pair<std::string, std::uint64_t>;
  std::map<Place, std::map<std::string, std::vector<Call>>> calls;
  for (const auto& w : statuses) {
    if (!w.snapshot) continue;
    // Includes finished operations, because a rank that sent a message of the wrong length may not
    // notice it.
    for (const auto& call : w.snapshot->recent) {
      if (call.number) calls[{call.channel, *call.number}][call.signature].push_back({&w, &call});
    }
  }
  for (const auto& [place, by_signature] : calls) {
    if (by_signature.size() < 2) continue;
    std::vector<std::pair<Witnesses, const OperationRecord*>> groups;
    for (const auto& [signature, of_ranks] : by_signature) {
      groups.push_back({{}, of_ranks.front().what});
      for (const Call& call : of_ranks) groups.back().first.push_back(call.by);
    }
    std::sort(groups.begin(), groups.end(),
              [](const auto& a, const auto& b) { return more_suspicious(a.first, b.first); });
    const auto& [few, few_called] = groups.front();
    const auto& [many, many_called] = groups.back();
    return blame(
        *few.front(), FailureKind::disagreement,
        fmt::format("the ranks do not call the same collectives: {} called {} [{}]; {} called "
                    "{} [{}]; all must run the same steps in the same order",
                    names_of(few), few_called->what, few_called->signature, names_of(many),
                    many_called->what, many_called->signature));
  }
  return std::nullopt;
}

Failure find_cause(std::span<const RankStatus> statuses, const Failure& report) {
  if (auto failure = find_disagreement(statuses)) return *failure;
  // A wrong length is not a wait, so late or silent ranks are not the cause.
  if (report.symptom == Symptom::wrong_length) {
    return {
        .rank = report.rank, .text = report.text, .lost = true, .kind = FailureKind::disagreement};
  }
  if (auto failure = find_silent(statuses, report)) return *failure;
  // Nor is a remote error. It ended the collectives of the rank, so what the ranks did then says
  // little.
  if (report.symptom == Symptom::remote_error) {
    return {.rank = report.rank,
            .text = report.text +
                    "; no rank exited or reported an error of its own, so the network between the "
                    "ranks may have failed: check it with ddp-check net",
            .kind = FailureKind::network};
  }
  if (auto failure = find_absent(statuses, report)) return *failure;
  if (auto failure = find_busy_gpu(statuses, report)) return *failure;
  if (auto failure = find_circle_of_groups(statuses)) return *failure;
  if (auto failure = find_elsewhere(statuses, report)) return *failure;
  const char* const why =
      waits_for_message(statuses, report.rank)
          ? "; the other rank has not called the matching send or receive, or the network between "
            "them does not deliver messages: check it with ddp-check net"
          : "; all ranks joined the collective, so the network between them does not deliver "
            "messages: check it with ddp-check net";
  return {
      .rank = report.rank, .text = report.text + why, .lost = true, .kind = FailureKind::network};
}

nlohmann::json failure_record(std::span<const RankStatus> statuses, const Failure& failure,
                              std::span<const Loss> losses) {
  auto ranks = nlohmann::json::array();
  std::string node;
  for (const auto& w : statuses) {
    if (w.rank == failure.rank) node = node_of(w.who);
    ranks.push_back({{"rank", w.rank},
                     {"who", w.who},
                     {"answered", w.snapshot.has_value()},
                     {"activity", w.snapshot ? to_json(*w.snapshot) : nlohmann::json()}});
  }
  auto lost = nlohmann::json::array();
  for (const auto& loss : losses) {
    lost.push_back({{"rank", loss.rank},
                    {"node", node_of(loss.who)},
                    {"who", loss.who},
                    {"kind", to_string(loss.kind)}});
  }
  const auto kind = failure.is_usage_error ? FailureKind::usage : failure.kind;
  return {{"schema", "slurm-ddp/failure/1"},
          {"unix_time", unix_seconds()},
          {"rank", failure.rank},
          {"node", node},
          {"kind", to_string(kind)},
          {"text", failure.text},
          {"lost", std::move(lost)},
          {"ranks", std::move(ranks)}};
}

}  // namespace ddp::comm
