// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/log_part.h"

#include <array>

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
    {"OUT_OF_MEMORY", "oom_kill event", "the kernel killed processes for lack of memory",
     "ask for more with --mem, or use fewer loader workers", true},
    {"CANCELLED", " CANCELLED AT ", "it was cancelled", ""},
});

const OutsideEnd* end_by_line(std::string_view line) noexcept {
  constexpr std::string_view kStep = "slurmstepd: error: ";
  if (line.find(kStep) == line.npos) return nullptr;
  for (const auto& end : kOutsideEnds) {
    if (!end.line.empty() && line.find(end.line) != line.npos) return &end;
  }
  return nullptr;
}

// Line by line; the parts grow with it.
class PartReader {
 public:
  explicit PartReader(std::string_view text) : text_(text) {}

  std::vector<LogPart> read() {
    begin_part(0);
    any_line(text_, [this](std::string_view line) {
      take(line);
      return false;
    });
    return std::move(parts_);
  }

 private:
  // Of the tasks of an ended step: some are not over yet, or srun has said how some ended.
  enum class State { own, answer, reported };

  void begin_part(std::size_t start) {
    parts_.push_back({text_.substr(start, 0), {}});
    state_ = State::own;
  }

  void take(std::string_view line) {
    const auto start = static_cast<std::size_t>(line.data() - text_.data());
    const OutsideEnd* end = end_by_line(line);
    const bool is_end = end != nullptr && !end->is_lack_of_memory;
    if (is_end) {
      take_end(*end, line);
    } else if (!task_report(line).empty()) {
      if (state_ == State::answer && !is_jobs_end_) state_ = State::reported;
    } else if (state_ == State::reported) {
      begin_part(start);
    }
    LogPart& part = parts_.back();
    if (state_ == State::own && end != nullptr) part.lack_of_memory = end;
    auto& grows = state_ == State::own ? part.own : part.answer;
    const std::size_t from =
        grows.data() == nullptr ? start : static_cast<std::size_t>(grows.data() - text_.data());
    grows = text_.substr(from, start + line.size() + 1 - from);
  }

  // Each node says it, and slurmstepd of the batch script for the whole job.
  void take_end(const OutsideEnd& end, std::string_view line) {
    LogPart& part = parts_.back();
    if (part.end == nullptr) part.end = &end;
    is_jobs_end_ = is_jobs_end_ || line.find("*** JOB ") != line.npos;
    state_ = State::answer;
  }

  std::string_view text_;
  std::vector<LogPart> parts_;
  State state_ = State::own;
  bool is_jobs_end_ = false;
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
  if (!line.starts_with(kSrun)) return "";
  const auto rest = trimmed(line.substr(kSrun.size()));
  const bool is_of_tasks = rest.find(": task ") != rest.npos || rest.find(": tasks ") != rest.npos;
  return is_of_tasks ? rest : "";
}

}  // namespace ddp::post_mortem
