// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/log_part.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>

#include "base/text.h"

namespace ddp::post_mortem {
namespace {

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
    {"REQUEUED", "DUE TO JOB REQUEUE", "the job was requeued", ""},
    {"OUT_OF_MEMORY", "oom_kill event", "the kernel killed processes for lack of memory",
     "ask for more with --mem, or use fewer loader workers", true},
    {"CANCELLED", " CANCELLED AT ", "it was cancelled", ""},
});

// slurmstepd's; from release 25.05 on, they begin with a time: "[2026-07-05T00:02:38.032] error: ".
std::string_view error_of_slurmstepd(std::string_view line) noexcept {
  for (const std::string_view start : {"slurmstepd: error: ", "] error: "}) {
    if (const auto at = line.find(start); at != line.npos) return line.substr(at + start.size());
  }
  return "";
}

const OutsideEnd* end_by_line(std::string_view line) noexcept {
  const auto error = error_of_slurmstepd(line);
  if (!error.starts_with("*** ") && !error.starts_with("Detected ")) return nullptr;
  // srun --kill-on-bad-exit: a task has failed before.
  if (error.find("DUE TO TASK FAILURE") != error.npos) return nullptr;
  for (const auto& end : kOutsideEnds) {
    if (!end.line.empty() && error.find(end.line) != error.npos) return &end;
  }
  return nullptr;
}

// Of the tasks that a report is about, the first ones: 1, 4 and 5 for "node2: tasks 1,4-5: Killed".
std::set<std::uint32_t> tasks_in(std::string_view report) {
  constexpr std::uint32_t kMaxTasks = 4096;
  const auto colon = report.find(": task");
  auto list = report.substr(std::min(report.find(' ', colon + 2), report.size()));
  list = trimmed(list.substr(0, list.find(':')));
  std::set<std::uint32_t> tasks;
  for (const auto range : split(list, ',', kMaxTasks)) {
    const auto dash = range.find('-');
    const auto first = parse_decimal(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_decimal(range.substr(dash + 1));
    if (!first || !last) continue;
    for (std::uint64_t task = *first; task <= *last && tasks.size() < kMaxTasks; ++task) {
      tasks.insert(static_cast<std::uint32_t>(task));
    }
  }
  return tasks;
}

// Line by line; the parts grow with it.
class PartReader {
 public:
  explicit PartReader(std::string_view text) : text_(text) {}

  std::vector<LogPart> read() {
    parts_.emplace_back();
    any_line(text_, [this](std::string_view line) {
      take(line);
      return false;
    });
    return std::move(parts_);
  }

 private:
  // Of the tasks of an ended step, some are not over yet, or srun has said how some ended.
  enum class State { own, answer, reported };

  void take(std::string_view line) {
    const OutsideEnd* end = end_by_line(line);
    if (end != nullptr && !end->is_lack_of_memory) {
      take_end(*end, line);
    } else if (const auto report = task_report(line); !report.empty()) {
      take_report(report);
    } else if (state_ == State::reported && !line.starts_with("srun: ")) {
      parts_.emplace_back();
      state_ = State::own;
      is_certain_ = false;
    }
    is_certain_ = is_certain_ || line.find("ddp: ") == 0;
    LogPart& part = parts_.back();
    if (state_ == State::own && end != nullptr) part.lack_of_memory = end;
    add(state_ == State::own ? part.own : part.answer, line);
  }

  void add(std::string_view& text, std::string_view line) const {
    const auto start = static_cast<std::size_t>(line.data() - text_.data());
    const auto from = text.empty() ? start : static_cast<std::size_t>(text.data() - text_.data());
    text = text_.substr(from, start + line.size() + 1 - from);
  }

  // Each node says it, and slurmstepd of the batch script for the whole job. After a requeue, and
  // perhaps after a preemption, the log continues with the next start of the job.
  void take_end(const OutsideEnd& end, std::string_view line) {
    LogPart& part = parts_.back();
    if (part.end == nullptr) part.end = &end;
    const bool may_continue = end.state == "PREEMPTED" || end.state == "REQUEUED";
    const bool is_of_job = line.find("*** JOB ") != line.npos || end.state != "CANCELLED";
    is_over_ = is_over_ || (is_of_job && !may_continue);
    if (state_ == State::own) reported_.clear();
    state_ = State::answer;
  }

  // srun reports each task of an ended step once. So what another task of it wrote in between is no
  // later step, unless this plugin has announced one.
  void take_report(std::string_view report) {
    if (state_ == State::answer && !is_over_) state_ = State::reported;
    auto tasks = tasks_in(report);
    const bool is_new = !tasks.empty() && !reported_.contains(*tasks.begin());
    if (state_ == State::own && parts_.size() > 1 && !is_certain_ && is_new) {
      const std::string_view late = parts_.back().own;
      parts_.pop_back();
      if (!late.empty()) add(parts_.back().answer, late.substr(0, late.size() - 1));
      state_ = State::reported;
    }
    reported_.merge(tasks);
  }

  std::string_view text_;
  std::vector<LogPart> parts_;
  State state_ = State::own;
  std::set<std::uint32_t> reported_;  // tasks of the step that was ended last
  bool is_certain_ = false;           // that the last part is one of a later step
  bool is_over_ = false;              // no step of the job can come any more
};

}  // namespace

const OutsideEnd* end_by_state(std::string_view state) noexcept {
  for (const auto& end : kOutsideEnds) {
    if (state == end.state) return &end;
  }
  return nullptr;
}

std::vector<LogPart> parts_of_log(std::string_view text) {
  return PartReader(text).read();
}

std::string_view task_report(std::string_view line) noexcept {
  constexpr std::string_view kSrun = "srun: error: ";
  const auto at = line.find(kSrun);  // a progress bar may be before it
  if (at == line.npos) return "";
  const auto rest = trimmed(line.substr(at + kSrun.size()));
  const bool is_of_tasks = rest.find(": task ") != rest.npos || rest.find(": tasks ") != rest.npos;
  return is_of_tasks ? rest : "";
}

}  // namespace ddp::post_mortem
