// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/step_recorder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ddp::profile {
namespace {

// The steps of a long run would fill the memory, so at twice this number the older half is dropped.
constexpr std::size_t kStepsKept = 2048;

double seconds_of(Interval time) {
  return std::chrono::duration<double>(time.end - time.begin).count();
}

}  // namespace

std::string_view to_string(Phase phase) noexcept {
  switch (phase) {
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::exposed_comm:
      return "exposed_comm";
    case Phase::optimizer:
      return "optimizer";
    case Phase::checkpoint:
      return "checkpoint";
  }
  return "?";
}

double StepRecord::total() const {
  return seconds_of(time) + std::accumulate(late.begin(), late.end(), 0.0);
}

double StepRecord::other() const {
  return total() - std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

StepSummary summarize(const std::vector<StepRecord>& steps, std::size_t warmup) {
  const std::size_t skipped = std::min(warmup, steps.size() / 2);
  StepSummary summary;
  summary.steps = steps.size() - skipped;
  if (summary.steps == 0) return summary;
  const double share = 1.0 / static_cast<double>(summary.steps);
  std::vector<double> totals;
  std::size_t bytes = 0;  // summed as an integer, so that equal steps have an integer mean
  for (std::size_t i = skipped; i < steps.size(); ++i) {
    const StepRecord& step = steps[i];
    totals.push_back(step.total());
    summary.mean += share * step.total();
    summary.other_mean += share * step.other();
    for (std::size_t p = 0; p < kPhases; ++p) summary.phase_means[p] += share * step.seconds[p];
    bytes += step.communication_bytes;
    summary.communication_seconds += share * step.communication_seconds;
    summary.hidden_seconds += share * step.hidden_seconds;
  }
  summary.communication_bytes = static_cast<double>(bytes) / static_cast<double>(summary.steps);
  summary.p50 = percentile(totals, 0.5);
  summary.p95 = percentile(totals, 0.95);
  return summary;
}

StepRecorder::Span::Span(StepRecorder& recorder, Phase phase)
    : recorder_(recorder), phase_(phase), begin_(Clock::now()) {}

StepRecorder::Span::~Span() {
  recorder_.add(phase_, {begin_, Clock::now()});
  if (recorder_.device_ != nullptr) recorder_.device_->end(phase_);
}

void StepRecorder::begin_step() {
  current_ = {};
  current_events_.clear();
  current_.time.begin = paused_ ? Clock::now() : ended_;
  if (device_ != nullptr) device_->begin_step(paused_);
  paused_ = false;
}

void StepRecorder::end_step() {
  current_.time.end = ended_ = Clock::now();
  current_.pending = device_ != nullptr;
  drop_oldest();
  steps_.push_back(current_);
  events_.push_back(std::exchange(current_events_, {}));
  if (device_ == nullptr) return;
  ++pending_;
  device_->end_step();
  collect();
}

void StepRecorder::drop_oldest() {
  if (steps_.size() == 2 * kStepsKept) {
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(kStepsKept));
  }
  if (events_.size() == kTracedSteps) events_.pop_front();
}

void StepRecorder::collect() {
  if (device_ == nullptr) return;
  for (const auto& step : device_->take_completed()) complete(step);
}

// Communication that was not in the way of the stream was hidden. That needs no comparison of the
// communication's clock with that of the phases.
void StepRecorder::complete(const DeviceStep& step) {
  const std::size_t age = pending_--;  // 1: the last step
  if (age > steps_.size()) return;
  StepRecord& record = steps_[steps_.size() - age];
  record.pending = false;
  record.time = step.time;
  record.seconds = record.late;
  std::vector<TraceEvent> events;
  for (const auto& [phase, time] : step.parts) {
    record.seconds[static_cast<std::size_t>(phase)] += seconds_of(time);
    events.push_back({std::string(to_string(phase)), time, false});
  }
  std::vector<Interval> times;
  for (const auto& span : step.communication) {
    times.push_back(span.time);
    record.communication_bytes += span.bytes;
    events.push_back({span.label, span.time, true});
  }
  if (!times.empty()) {
    const double exposed = record.seconds[static_cast<std::size_t>(Phase::exposed_comm)];
    record.communication_seconds = covered_seconds(times);
    record.hidden_seconds = std::max(0.0, record.communication_seconds - exposed);
  }
  if (age <= events_.size()) events_[events_.size() - age] = std::move(events);
}

void StepRecorder::add(Phase phase, Interval time) {
  current_.seconds[static_cast<std::size_t>(phase)] += seconds_of(time);
  current_events_.push_back({std::string(to_string(phase)), time, false});
}

void StepRecorder::add(Phase phase, const std::vector<Interval>& times) {
  for (const Interval& time : times) add(phase, time);
}

void StepRecorder::add_to_last_step(Phase phase, Interval time) {
  steps_.back().seconds[static_cast<std::size_t>(phase)] += seconds_of(time);
  steps_.back().late[static_cast<std::size_t>(phase)] += seconds_of(time);
}

void StepRecorder::add_communication(const std::vector<CommunicationSpan>& spans, Interval backward,
                                     const std::vector<Interval>& updates) {
  std::vector<Interval> times;
  for (const auto& span : spans) {
    times.push_back(span.time);
    current_.communication_bytes += span.bytes;
    current_events_.push_back({span.label, span.time, true});
  }
  current_.communication_seconds += covered_seconds(times);
  current_.hidden_seconds += covered_seconds_within(times, backward);
  for (const Interval& update : updates) {
    current_.hidden_seconds += covered_seconds_within(times, update);
  }
}

const std::vector<StepRecorder::TraceEvent>& StepRecorder::events_of(std::size_t age) const {
  static const std::vector<TraceEvent> none;
  return age == 0 || age > events_.size() ? none : events_[events_.size() - age];
}

std::vector<StepRecorder::TraceEvent> StepRecorder::recent_events() const {
  std::vector<TraceEvent> all;
  for (const auto& events : events_) all.insert(all.end(), events.begin(), events.end());
  return all;
}

}  // namespace ddp::profile
