// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "spank_plugin/guard/first_error.h"

namespace ddp::post_mortem {
namespace {

using guard::Cause;
using guard::FirstError;

constexpr std::size_t kShown = 300;

// How SLURM ended a job, in its words for a state and in its lines in a log.
struct OutsideEnd {
  std::string_view state;
  std::string_view line;
  std::string_view what;
  std::string_view remedy;
};

constexpr auto kOutsideEnds = std::to_array<OutsideEnd>({
    {"NODE_FAIL", "DUE TO NODE FAILURE", "a node of the job failed",
     "submit it again; sbatch --exclude leaves the node out"},
    {"BOOT_FAIL", "", "a node of the job did not boot",
     "submit it again; sbatch --exclude leaves the node out"},
    {"TIMEOUT", "DUE TO TIME LIMIT", "the job reached its time limit",
     "ask for more with --time, or save a checkpoint on SIGTERM"},
    {"DEADLINE", "", "the job could not end before its deadline", ""},
    {"PREEMPTED", "DUE TO PREEMPTION", "the job was preempted",
     "let SLURM start it again with --requeue, and resume from a checkpoint"},
    {"OUT_OF_MEMORY", "oom_kill event", "the kernel killed processes for lack of memory",
     "ask for more with --mem, or use fewer loader workers"},
    {"CANCELLED", " CANCELLED AT ", "it was cancelled", ""},
});

bool is_node_failure(const OutsideEnd* end) noexcept {
  return end != nullptr && end->state == "NODE_FAIL";
}

// The others are ends that follow from an error, if there was one before.
bool is_lack_of_memory(const OutsideEnd* end) noexcept {
  return end != nullptr && end->state == "OUT_OF_MEMORY";
}

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

// Calls `use` with each line until it returns true.
template <typename Use>
bool any_line(std::string_view text, Use use) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (use(line)) return true;
  }
  return false;
}

const OutsideEnd* end_by_state(std::string_view state) noexcept {
  for (const auto& end : kOutsideEnds) {
    if (state == end.state) return &end;
  }
  return nullptr;
}

const OutsideEnd* end_by_line(std::string_view line) noexcept {
  constexpr std::string_view kStep = "slurmstepd: error: ";
  if (line.find(kStep) == line.npos) return nullptr;
  for (const auto& end : kOutsideEnds) {
    if (!end.line.empty() && line.find(end.line) != line.npos) return &end;
  }
  return nullptr;
}

const OutsideEnd* outside_end(const JobRecord* job, std::span<const Log> logs) {
  if (job != nullptr) {
    if (const auto* end = end_by_state(job->state)) return end;
  }
  const OutsideEnd* found = nullptr;
  for (const auto& log : logs) {
    any_line(log.text, [&found](std::string_view line) {
      found = end_by_line(line);
      return found != nullptr;
    });
    if (found != nullptr) return found;
  }
  return nullptr;
}

// What the guard of a rank said: it has seen how the rank ended.
std::optional<Explanation> by_watch(std::span<const Log> logs) {
  constexpr std::string_view kWatch = "ddp: watch: ";
  std::string_view said;
  for (const auto& log : logs) {
    const bool found = any_line(log.text, [&said, kWatch](std::string_view line) {
      const auto at = line.find(kWatch);
      if (at == line.npos) return false;
      said = trimmed(line.substr(at + kWatch.size()));
      // Not that it left processes behind, nor that it cannot be watched.
      return said.find(" failed") != said.npos || said.find(" was killed ") != said.npos ||
             said.find(" ended with ") != said.npos;
    });
    if (!found) continue;
    const std::string what = sanitize_beginning(said, kShown);
    const bool has_remedy = said.find("; ask for ") != said.npos;
    const auto remedy = has_remedy ? "" : remedy_for(guard::find_first_error(said).cause);
    return Explanation{what, std::string(remedy)};
  }
  return std::nullopt;
}

// What a program prints because it is told to end.
bool is_answer_to_a_signal(const FirstError& error) noexcept {
  return error.text.starts_with("KeyboardInterrupt") || error.text.starts_with("SystemExit");
}

struct LogError {
  FirstError error;
  const Log* log = nullptr;
};

// A log until SLURM ended the job: what comes later is the answer to that.
std::string_view before_end(std::string_view text) {
  std::size_t size = 0;
  any_line(text, [&size](std::string_view line) {
    const auto* end = end_by_line(line);
    if (end != nullptr && !is_lack_of_memory(end)) return true;
    size += line.size() + 1;
    return false;
  });
  return text.substr(0, size);
}

// The first log with an error of its own; else the first with an echo.
LogError error_in(std::span<const Log> logs, bool was_ended) {
  LogError found;
  for (const auto& log : logs) {
    FirstError error = guard::find_first_error(before_end(log.text));
    if (error.cause == Cause::none || (was_ended && is_answer_to_a_signal(error))) continue;
    const bool is_better = found.log == nullptr || found.error.cause == Cause::cascade;
    if (is_better && (found.log == nullptr || error.cause != Cause::cascade)) {
      found = {std::move(error), &log};
    }
  }
  return found;
}

Explanation by_error(const LogError& found, bool is_one_of_several) {
  const FirstError& error = found.error;
  std::string what =
      error.rank ? fmt::format("rank {} failed: ", *error.rank) : "the first error: ";
  what += error.text;
  if (!error.place.empty()) what += " (" + error.place + ")";
  if (is_one_of_several) what += ", in " + found.log->name;
  return {what, std::string(remedy_for(error.cause))};
}

// "srun: error: node2: task 1: Killed": the first such line is about the first task that ended,
// unless SLURM ended them all before.
std::optional<Explanation> by_srun(std::span<const Log> logs) {
  constexpr std::string_view kSrun = "srun: error: ";
  std::string_view said;
  for (const auto& log : logs) {
    any_line(log.text, [&said, kSrun](std::string_view line) {
      if (end_by_line(line) != nullptr) return true;
      if (!line.starts_with(kSrun)) return false;
      const auto rest = trimmed(line.substr(kSrun.size()));
      if (rest.find(": task ") == rest.npos && rest.find(": tasks ") == rest.npos) return false;
      said = rest;
      return true;
    });
    if (!said.empty()) {
      return Explanation{"the first task that ended: " + sanitize_beginning(said, kShown), ""};
    }
  }
  return std::nullopt;
}

Explanation by_end(const OutsideEnd& end, const JobRecord* job) {
  std::string what(end.what);
  if (is_node_failure(&end) && job != nullptr && !job->nodes.empty()) {
    what += ", one of " + sanitize_beginning(job->nodes, kShown);
  }
  return {what, std::string(end.remedy)};
}

// An error before the end from outside is the cause: the others waited for that rank until then.
Explanation with_end(Explanation cause, const OutsideEnd* end) {
  if (end != nullptr) cause.what += "; later " + std::string(end->what);
  return cause;
}

}  // namespace

std::optional<Explanation> explain(const JobRecord* job, std::span<const Log> logs) {
  const OutsideEnd* end = outside_end(job, logs);
  if (is_node_failure(end)) return by_end(*end, job);
  if (auto said = by_watch(logs)) return with_end(std::move(*said), end);
  if (is_lack_of_memory(end)) return by_end(*end, job);
  const LogError found = error_in(logs, end != nullptr);
  const bool is_own = found.log != nullptr && found.error.cause != Cause::cascade;
  if (is_own) return with_end(by_error(found, logs.size() > 1), end);
  if (auto said = by_srun(logs)) return with_end(std::move(*said), end);
  if (end != nullptr) return by_end(*end, job);
  if (found.log == nullptr) return std::nullopt;
  return Explanation{"only echoes of a failure elsewhere, such as: " + found.error.text,
                     "give the logs of all ranks and nodes"};
}

}  // namespace ddp::post_mortem
