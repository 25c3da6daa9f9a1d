// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/step_recorder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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
  return seconds_of(time) + extra;
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
}

void StepRecorder::begin_step() {
  current_ = {};
  current_.time.begin = paused_ ? Clock::now() : steps_.back().time.end;
  paused_ = false;
}

void StepRecorder::end_step() {
  current_.time.end = Clock::now();
  if (steps_.size() == 2 * kStepsKept) {
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(kStepsKept));
  }
  steps_.push_back(current_);
  events_per_step_.push_back(current_events_);
  current_events_ = 0;
  if (events_per_step_.size() > kTracedSteps) {
    const auto oldest = static_cast<std::ptrdiff_t>(events_per_step_.front());
    events_.erase(events_.begin(), events_.begin() + oldest);
    events_per_step_.erase(events_per_step_.begin());
  }
}

void StepRecorder::add(Phase phase, Interval time) {
  current_.seconds[static_cast<std::size_t>(phase)] += seconds_of(time);
  events_.push_back({std::string(to_string(phase)), time, false});
  ++current_events_;
}

void StepRecorder::add(Phase phase, const std::vector<Interval>& times) {
  for (const Interval& time : times) add(phase, time);
}

void StepRecorder::add_to_last_step(Phase phase, Interval time) {
  steps_.back().seconds[static_cast<std::size_t>(phase)] += seconds_of(time);
  steps_.back().extra += seconds_of(time);
}

void StepRecorder::add_communication(const std::vector<CommunicationSpan>& spans, Interval backward,
                                     const std::vector<Interval>& updates) {
  std::vector<Interval> times;
  for (const auto& span : spans) {
    times.push_back(span.time);
    current_.communication_bytes += span.bytes;
    events_.push_back({span.label, span.time, true});
    ++current_events_;
  }
  current_.communication_seconds += covered_seconds(times);
  current_.hidden_seconds += covered_seconds_within(times, backward);
  for (const Interval& update : updates) {
    current_.hidden_seconds += covered_seconds_within(times, update);
  }
}

}  // namespace ddp::profile
