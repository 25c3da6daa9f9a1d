// SPDX-License-Identifier: Apache-2.0
// Splits every training step into phases and summarizes many steps.
//
// Note [Phases of a step]
//   data           waiting for the loader, and moving the batch to the device
//   forward        forward pass and loss
//   backward       backward pass, until its last gradient exists
//   exposed_comm   communication that nothing hid: the waits after backward
//   optimizer      clipping and the parameter update, in one part or bucket by bucket
//   checkpoint     time for which a checkpoint delayed the step
//   other          the rest, so that the phases of a step always sum to its time
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/profile/interval.h"

namespace ddp::profile {

enum class Phase : std::uint8_t { data, forward, backward, exposed_comm, optimizer, checkpoint };
inline constexpr std::size_t kPhases = 6;
std::string_view to_string(Phase phase) noexcept;

// One all-reduce of one bucket, as executed.
struct CommunicationSpan {
  std::string label;
  std::size_t bytes = 0;
  Interval time;
};

struct StepRecord {
  Interval time;
  double extra = 0;  // seconds after the step that belong to it: see add_to_last_step()
  std::array<double, kPhases> seconds{};
  double communication_seconds = 0;  // of any kind, hidden or not
  double hidden_seconds = 0;         // the part of it that ran during backward and updates
  std::size_t communication_bytes = 0;

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

  // A step starts at the end of the previous one, so that no time is lost between them, unless a
  // pause (for example an evaluation) came in between.
  void begin_step();
  void pause() noexcept { paused_ = true; }
  void end_step();
  Span measure(Phase phase) { return {*this, phase}; }
  void add(Phase phase, Interval time);
  void add(Phase phase, const std::vector<Interval>& times);
  // Adds time spent after the last step that belongs to it, such as a checkpoint at the end of an
  // epoch.
  void add_to_last_step(Phase phase, Interval time);
  // Adds collectives of this step; time within `backward` and `updates` counts as hidden. The
  // updates must not overlap with backward or each other.
  void add_communication(const std::vector<CommunicationSpan>& spans, Interval backward,
                         const std::vector<Interval>& updates = {});

  const std::vector<StepRecord>& steps() const noexcept { return steps_; }
  // The events of the most recent steps, for a trace.
  const std::vector<TraceEvent>& recent_events() const noexcept { return events_; }

 private:
  static constexpr std::size_t kTracedSteps = 20;

  std::vector<StepRecord> steps_;
  StepRecord current_;
  bool paused_ = true;
  std::vector<TraceEvent> events_;
  std::vector<std::size_t> events_per_step_;
  std::size_t current_events_ = 0;
};

}  // namespace ddp::profile
