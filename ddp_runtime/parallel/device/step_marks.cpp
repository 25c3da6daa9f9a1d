// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/device/step_marks.h"

#include <algorithm>
#include <utility>

#include "ddp_runtime/torch_compat.h"

namespace ddp {

using profile::Clock;

struct StepMarks::Mark {
  c10::Event event;
  Clock::time_point recorded;
};

namespace {

Clock::duration between(const c10::Event& from, const c10::Event& to) {
  const std::chrono::duration<double, std::milli> time(torch_compat::milliseconds(from, to));
  return std::chrono::duration_cast<Clock::duration>(time);
}

}  // namespace

StepMarks::StepMarks(torch::Device device)
    : device_(device), unused_(std::make_shared<std::vector<std::unique_ptr<Mark>>>()) {}

StepMarks::~StepMarks() = default;

// Marks are used again, because creating an event takes microseconds.
StepMarks::MarkPointer StepMarks::record() {
  std::unique_ptr<Mark> mark;
  if (unused_->empty()) {
    mark = std::make_unique<Mark>(Mark{c10::Event(device_.type(), torch_compat::kTimedEvent), {}});
  } else {
    mark = std::move(unused_->back());
    unused_->pop_back();
  }
  mark->recorded = Clock::now();
  const c10::impl::VirtualGuardImpl streams(device_.type());
  mark->event.record(streams.getStream(device_));
  return {mark.release(), [unused = unused_](Mark* used) { unused->emplace_back(used); }};
}

// The training step reports an error of the device, with what it was doing.
StepMarks::MarkPointer StepMarks::mark() noexcept {
  if (broken_) return nullptr;
  try {
    return record();
  } catch (const std::exception&) {
    broken_ = true;
    return nullptr;
  }
}

void StepMarks::begin_step(bool after_pause) {
  const auto before = std::exchange(current_, {}).end;
  current_.begin = after_pause || !before ? mark() : before;
}

void StepMarks::end(profile::Phase phase) noexcept {
  if (auto end = mark()) current_.parts.push_back({phase, std::move(end)});
}

void StepMarks::add(std::string label, std::size_t bytes, comm::Work work) {
  current_.collectives.push_back({std::move(label), bytes, std::move(work)});
}

void StepMarks::end_step() {
  current_.end = mark();
  if (!broken_) running_.push_back(current_);
}

bool StepMarks::completed(const Step& step) {
  return step.end->event.query() &&
         std::all_of(step.collectives.begin(), step.collectives.end(),
                     [](const Collective& collective) { return collective.work.done(); });
}

std::vector<profile::DeviceStep> StepMarks::take_completed() {
  std::vector<profile::DeviceStep> steps;
  try {
    while (!broken_ && !running_.empty() && completed(running_.front())) {
      steps.push_back(times_of(running_.front()));
      running_.pop_front();
    }
  } catch (const c10::Error&) {
    broken_ = true;
  }
  return steps;
}

profile::DeviceStep StepMarks::times_of(const Step& step) {
  const auto begin =
      last_ ? time_of_last_ + between(last_->event, step.begin->event) : step.begin->recorded;
  std::vector<Clock::time_point> times;
  auto moved = std::max(Clock::duration::zero(), step.begin->recorded - begin);
  const auto time_of = [&](const Mark& mark) {
    const auto time = begin + between(step.begin->event, mark.event);
    moved = std::max(moved, mark.recorded - time);
    return time;
  };
  for (const auto& part : step.parts) times.push_back(time_of(*part.end));
  const auto end = time_of(*step.end);
  moved = std::min(moved, Clock::now() - end);

  profile::DeviceStep result{{begin + moved, end + moved}, {}, {}};
  auto before = result.time.begin;
  for (std::size_t i = 0; i < times.size(); ++i) {
    result.parts.push_back({step.parts[i].phase, {before, times[i] + moved}});
    before = times[i] + moved;
  }
  for (const auto& collective : step.collectives) {
    const auto ran = collective.work.times();
    result.communication.push_back(
        {collective.label, collective.bytes, {ran.started, ran.finished}});
  }
  last_ = step.end;
  time_of_last_ = result.time.end;
  return result;
}

}  // namespace ddp
