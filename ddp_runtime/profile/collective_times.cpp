// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/collective_times.h"

#include <algorithm>

namespace ddp::profile {

StepCollectives collectives_of(const StepRecorder& recorder, std::size_t age) {
  StepCollectives found;
  const auto& steps = recorder.steps();
  if (age == 0 || age > steps.size() || steps[steps.size() - age].pending) return found;
  for (const auto& event : recorder.events_of(age)) {
    if (event.communication) {
      found.times.push_back(event.time);
    } else if (event.name == to_string(Phase::exposed_comm)) {
      found.exposed.push_back(event.time);
    }
  }
  return found;
}

WaitSplit split_waiting(const StepCollectives& step, std::span<const float> least) {
  WaitSplit split;
  std::vector<Interval> waits;
  const std::size_t count = std::min(step.times.size(), least.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Interval& time = step.times[i];
    const double duration =
        std::max(0.0, std::chrono::duration<double>(time.end - time.begin).count());
    const double wire = std::clamp(static_cast<double>(least[i]), 0.0, duration);
    split.wire += wire;
    split.waiting += duration - wire;
    const auto waited =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(duration - wire));
    waits.push_back({time.begin, time.begin + waited});
  }
  for (const Interval& exposed : step.exposed) {
    split.exposed_waiting += covered_seconds_within(waits, exposed);
  }
  return split;
}

void WaitTotals::add(const WaitSplit& step, double mean_waiting) {
  ++steps;
  exposed_waiting += step.exposed_waiting;
  wire += step.wire;
  if (step.waiting < mean_waiting) ++late_steps;
}

}  // namespace ddp::profile
