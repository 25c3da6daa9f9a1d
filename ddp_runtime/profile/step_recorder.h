// SPDX-License-Identifier: Apache-2.0
// Splits every training step into phases and summarizes many steps.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "ddp_runtime/profile/device_timer.h"
#include "ddp_runtime/profile/interval.h"
#include "ddp_runtime/profile/phase.h"

namespace ddp::profile {

struct StepRecord {
  Interval time;
  std::array<double, kPhases> seconds{};
  std::array<double, kPhases> late{};  // the part of `seconds` that add_to_last_step() added
  double communication_seconds = 0;    // of any kind, hidden or not
  double hidden_seconds = 0;           // the part of it that ran during backward and updates
  std::size_t communication_bytes = 0;
  bool pending = false;  // a device's times are still to come, and replace those of the program

  double total() const;
  double other() const;
};

// Percentile p in [0, 1] by the nearest-rank method; 0 for an empty list.
double percentile(std::vector<double> values, double p);

struct StepSummary {
  std::size_t steps = 0;  // measured steps
  double p50 = 0;
  double p95 = 0;
  double mean = 0;
  std::array<double, kPhases> phase_means{};  // together with other_mean they sum to the mean
  double other_mean = 0;
  double communication_bytes = 0;    // per step
  double communication_seconds = 0;  // per step
  double hidden_seconds = 0;         // per step
};

// The first steps are slower (allocation, first touch, connections) and not representative of a
// long run, so the first `warmup` steps are left out if more than half of the steps remain.
StepSummary summarize(const std::vector<StepRecord>& steps, std::size_t warmup);

class StepRecorder {
 public:
  StepRecorder() = default;
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // Times one phase of the current step until it goes out of scope.
  class Span {
   public:
    Span(StepRecorder& recorder, Phase phase);
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span();

   private:
    StepRecorder& recorder_;
    Phase phase_;
    Clock::time_point begin_;
  };

  struct TraceEvent {
    std::string name;
    Interval time;
    bool communication = false;
  };

  // From the next step on, the times are those of a device: see Note [Steps of a device]. The timer
  // must live until this is called with null.
  void time_on(DeviceTimer* device) noexcept { device_ = device; }

  // A step starts at the end of the previous one, so that no time is lost between them, unless a
  // pause (for example an evaluation) came in between.
  void begin_step();
  void pause() noexcept { paused_ = true; }
  void end_step();
  Span measure(Phase phase) { return {*this, phase}; }
  void add(Phase phase, Interval time);
  void add(Phase phase, const std::vector<Interval>& times);
  // Takes the times that the device has completed. end_step() does, too.
  void collect();
  // Adds time spent after the last step that belongs to it, such as a checkpoint at the end of an
  // epoch.
  void add_to_last_step(Phase phase, Interval time);
  // Adds collectives of this step; time within `backward` and `updates` counts as hidden. The
  // updates must not overlap with backward or each other.
  void add_communication(const std::vector<CommunicationSpan>& spans, Interval backward,
                         const std::vector<Interval>& updates = {});

  const std::vector<StepRecord>& steps() const noexcept { return steps_; }
  // Whether the times of steps are those of a device, which gives them later.
  bool times_on_device() const noexcept { return device_ != nullptr; }
  // The events of a step of the most recent ones, 1 for the last one; those of the program if it is
  // still pending; nothing if it is older than kTracedSteps.
  const std::vector<TraceEvent>& events_of(std::size_t age) const;
  // The events of the most recent steps, for a trace.
  std::vector<TraceEvent> recent_events() const;
  static constexpr std::size_t kTracedSteps = 20;

 private:
  void complete(const DeviceStep& step);
  void drop_oldest();

  std::vector<StepRecord> steps_;
  StepRecord current_;
  bool paused_ = true;
  Clock::time_point ended_;  // the end of the last step for the program
  std::vector<TraceEvent> current_events_;
  std::deque<std::vector<TraceEvent>> events_;  // of the last steps
  DeviceTimer* device_ = nullptr;
  std::size_t pending_ = 0;  // number of steps at the end of steps_ that are pending
};

}  // namespace ddp::profile
