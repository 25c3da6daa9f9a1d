// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/explanation.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ddp_runtime/post_mortem/log_part.h"
#include "spank_plugin/guard/first_error.h"
#include "spank_plugin/guard/stall_text.h"
#include "spank_plugin/guard/verdict.h"

namespace ddp::post_mortem {
namespace {

using guard::Cause;
using guard::FirstError;

constexpr std::size_t kShown = 300;
constexpr std::string_view kWatch = "ddp: watch: ";

std::string_view remedy_for(Cause cause) noexcept {
  switch (cause) {
    case Cause::host_memory:
      return "ask for more with --mem, or use fewer loader workers";
    case Cause::gpu_memory:
      return "use a smaller batch with gradient accumulation, or shards";
    case Cause::gpu_fault:
      return "leave the node out with sbatch --exclude, and tell its administrators";
    case Cause::device_error:
      return "run it once with CUDA_LAUNCH_BLOCKING=1, because the error may come from an earlier "
             "call";
    case Cause::library_timeout:
      return "look for the rank that did not come; the one that reports this is not to blame";
    case Cause::crash:
      return "run it once with PYTHONFAULTHANDLER=1, or open its core file with gdb";
    case Cause::none:
    case Cause::own_error:
    case Cause::cascade:
      break;
  }
  return "";
}

// A log with its parts; a job's record may know of an end of which no log has a line.
struct ReadLog {
  const Log* log;
  std::vector<LogPart> parts;
};

std::vector<ReadLog> read_all(std::span<const Log> logs) {
  std::vector<ReadLog> all;
  for (const auto& log : logs) all.push_back({&log, parts_of_log(log.text)});
  return all;
}

// The first part of a log for which `is_wanted` is true; null if there is none.
template <typename Wanted>
const LogPart* find_part(std::span<const ReadLog> logs, Wanted is_wanted) {
  for (const auto& log : logs) {
    for (const auto& part : log.parts) {
      if (is_wanted(part)) return &part;
    }
  }
  return nullptr;
}

Explanation by_end(const OutsideEnd& end, const JobRecord* job) {
  std::string what(end.what);
  if (end.state == "NODE_FAIL" && job != nullptr && !job->nodes.empty()) {
    what += ", one of " + sanitize_beginning(job->nodes, kShown);
  }
  return {what, std::string(end.remedy)};
}

// An error before the end from outside is the cause: the others waited for that rank until then.
Explanation with_end(Explanation cause, const OutsideEnd* end) {
  if (end != nullptr) cause.what += "; later " + std::string(end->what);
  return cause;
}

// What a line of the watch says; empty for another line.
std::string_view said_by_watch(std::string_view line) {
  const auto at = line.find(kWatch);
  return at == line.npos ? std::string_view() : trimmed(line.substr(at + kWatch.size()));
}

bool is_about_a_stall(std::string_view said) noexcept {
  return said.starts_with(guard::kNoProgress) || said.find(guard::kStopped) != said.npos;
}

// Without what the guards do next.
std::string_view cause_in(std::string_view said) noexcept {
  for (const auto ending : {guard::kStillRuns, guard::kEndsStep, guard::kEndsNode}) {
    if (said.ends_with(ending)) said.remove_suffix(ending.size());
  }
  return said;
}

// What the guard of a rank said about its end, or of ranks that stood still and were ended for it;
// not that they stood still, that it left processes behind, nor that it cannot be watched.
// `when_told`: that of a rank that was told to end, or of another one. Empty if it said nothing.
std::string_view line_of_watch(std::string_view text, bool when_told) {
  std::string_view found;
  any_line(text, [&found, when_told](std::string_view line) {
    const auto said = said_by_watch(line);
    if (is_about_a_stall(said)) {
      const bool is_end = !when_told && said.ends_with(guard::kEndsStep);
      if (is_end) found = cause_in(said);
      return is_end;
    }
    if ((said.find(guard::kFailedWhenTold) != said.npos) != when_told) return false;
    for (const std::string_view ending : {" failed", " was killed ", " ended with "}) {
      if (said.find(ending) != said.npos) found = cause_in(said);
    }
    return !found.empty();
  });
  return found;
}

std::optional<Explanation> by_watch(std::span<const ReadLog> logs, const OutsideEnd* jobs_end,
                                    bool when_told) {
  std::string_view said;
  const LogPart* part = find_part(logs, [&said, when_told](const LogPart& candidate) {
    said = line_of_watch(candidate.own, when_told);
    if (said.empty()) said = line_of_watch(candidate.answer, when_told);
    return !said.empty();
  });
  if (part == nullptr) return std::nullopt;
  const std::string what = sanitize_beginning(said, kShown);
  const OutsideEnd* end = part->end != nullptr ? part->end : jobs_end;
  if (when_told && end != nullptr) {
    return Explanation{std::string(end->what) + "; then " + what, std::string(end->remedy)};
  }
  const bool has_remedy = said.find("; ask for ") != said.npos;
  const auto remedy = has_remedy ? "" : remedy_for(guard::find_first_error(said).cause);
  return with_end({what, std::string(remedy)}, end);
}

struct FoundError {
  FirstError error;
  const Log* log = nullptr;  // null if there is none
  const OutsideEnd* end = nullptr;
};

// The first error of a program's own; else the first echo.
FoundError find_error(std::span<const ReadLog> logs, const OutsideEnd* jobs_end) {
  FoundError found;
  for (const auto& log : logs) {
    const bool was_ended = jobs_end != nullptr || log.parts.front().end != nullptr;
    for (const auto& part : log.parts) {
      FirstError error = guard::find_first_error(part.own);
      if (error.cause == Cause::none || (was_ended && is_answer_to_a_signal(error))) continue;
      const bool is_own = error.cause != Cause::cascade;
      if (found.log != nullptr && (found.error.cause != Cause::cascade || !is_own)) continue;
      found = {std::move(error), log.log, part.end != nullptr ? part.end : jobs_end};
    }
  }
  return found;
}

Explanation by_error(const FoundError& found, bool is_one_of_several) {
  const FirstError& error = found.error;
  std::string what =
      error.rank ? fmt::format("rank {} failed: ", *error.rank) : "the first error: ";
  what += error.text;
  if (!error.place.empty()) what += " (" + error.place + ")";
  if (is_one_of_several) what += ", in " + found.log->name;
  return with_end({what, std::string(remedy_for(error.cause))}, found.end);
}

// The first line of srun is about the first task that ended, unless SLURM ended them all before.
std::optional<Explanation> by_srun(std::span<const ReadLog> logs, const OutsideEnd* jobs_end) {
  std::string_view said;
  const LogPart* part = find_part(logs, [&said](const LogPart& candidate) {
    return any_line(candidate.own, [&said](std::string_view line) {
      said = task_report(line);
      return !said.empty();
    });
  });
  if (part == nullptr) return std::nullopt;
  return with_end({"the first task that ended: " + sanitize_beginning(said, kShown), ""},
                  part->end != nullptr ? part->end : jobs_end);
}

// The watch's last line about ranks that stood still, unless there was progress afterwards.
std::string_view last_stall(std::string_view text) {
  std::string_view found;
  any_line(text, [&found](std::string_view line) {
    const auto said = said_by_watch(line);
    if (is_about_a_stall(said)) found = cause_in(said);
    if (said.starts_with(guard::kProgressAgain)) found = {};
    return false;
  });
  return found;
}

// The time limit or a cancellation, which may have ended ranks that hung.
Explanation by_end_of_stall(const OutsideEnd& end, const JobRecord* job,
                            std::span<const ReadLog> logs) {
  Explanation explanation = by_end(end, job);
  std::string_view said;
  const LogPart* part = find_part(logs, [&said](const LogPart& candidate) {
    said = last_stall(candidate.own);
    return !said.empty();
  });
  if (part == nullptr) return explanation;
  return {explanation.what + "; before, " + sanitize_beginning(said, kShown), ""};
}

}  // namespace

std::optional<Explanation> explain(const JobRecord* job, std::span<const Log> texts) {
  const auto logs = read_all(texts);
  const OutsideEnd* end = job == nullptr ? nullptr : end_by_state(job->state);
  const LogPart* ended = find_part(logs, [](const LogPart& part) { return part.end != nullptr; });
  if (end == nullptr && ended != nullptr && ended->end->state == "NODE_FAIL") end = ended->end;
  if (end != nullptr && end->state == "NODE_FAIL") return by_end(*end, job);
  for (const bool when_told : {false, true}) {
    if (auto said = by_watch(logs, end, when_told)) return said;
  }
  const LogPart* starved =
      find_part(logs, [](const LogPart& part) { return part.lack_of_memory != nullptr; });
  if (end != nullptr && end->is_lack_of_memory) return by_end(*end, job);
  if (end == nullptr && starved != nullptr) return by_end(*starved->lack_of_memory, job);
  const FoundError found = find_error(logs, end);
  const bool is_own = found.log != nullptr && found.error.cause != Cause::cascade;
  if (is_own) return by_error(found, logs.size() > 1);
  if (auto said = by_srun(logs, end)) return said;
  if (end == nullptr && ended != nullptr) end = ended->end;
  if (end != nullptr) return by_end_of_stall(*end, job, logs);
  if (found.log == nullptr) return std::nullopt;
  return Explanation{"only echoes of a failure elsewhere, such as: " + found.error.text,
                     "give the logs of all ranks and nodes"};
}

}  // namespace ddp::post_mortem
