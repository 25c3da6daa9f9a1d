// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/progress.h"

#include <algorithm>
#include <utility>

namespace ddp::watch {
namespace {

constexpr auto kShortestInterval = std::chrono::milliseconds(500);
constexpr auto kLongestInterval = std::chrono::seconds(5);

// In recorded hangs, ranks used up to 1.9 % of a core and 1.7 kB/s.
constexpr double kBusyCores = 0.025;
constexpr double kBusyBytesPerSecond = 4096;
// Such as those of rendezvous and loggers. Steps of very small models, in healthy runs that were
// recorded, moved 200 and more.
constexpr double kHeartbeatBytesPerSecond = 128;

// The same process at another time: most often it is in the same place.
const Process* find(const std::vector<Process>& processes, std::size_t place,
                    const Process& wanted) {
  const auto is_same = [&wanted](const Process& process) {
    return process.pid == wanted.pid && process.start == wanted.start;
  };
  if (place < processes.size() && is_same(processes[place])) return &processes[place];
  const auto found = std::ranges::find_if(processes, is_same);
  return found == processes.end() ? nullptr : &*found;
}

// Whether there was progress without regard to TCP.
bool is_busy(const Reading& before, const Reading& after) {
  if (before.processes.size() != after.processes.size()) return true;
  std::chrono::duration<double> cpu{};
  std::uint64_t io = 0;
  for (std::size_t place = 0; place < after.processes.size(); ++place) {
    const Process& process = after.processes[place];
    const Process* earlier = find(before.processes, place, process);
    if (earlier == nullptr) return true;
    cpu += process.cpu - earlier->cpu;
    if (process.io && earlier->io) io += std::max(*process.io, *earlier->io) - *earlier->io;
  }
  const std::chrono::duration<double> interval = after.time - before.time;
  return cpu >= kBusyCores * interval ||
         static_cast<double>(io) >= kBusyBytesPerSecond * interval.count();
}

// Whether it has done something since its start: as much as within a busy second.
bool has_started(const Reading& first) {
  std::chrono::duration<double> cpu{};
  std::uint64_t io = 0;
  for (const auto& process : first.processes) {
    cpu += process.cpu;
    io += process.io.value_or(0);
  }
  return cpu.count() >= kBusyCores || static_cast<double>(io) >= kBusyBytesPerSecond;
}

// The first process that is stopped; null if there is none.
const Process* find_stopped(const Reading& reading) {
  const auto found = std::ranges::find(reading.processes, 'T', &Process::state);
  return found == reading.processes.end() ? nullptr : &*found;
}

void update(std::optional<Clock::time_point>& since, bool holds, Clock::time_point now) {
  if (!holds) since.reset();
  if (holds && !since) since = now;
}

}  // namespace

bool ProgressMeter::needs_traffic(const Reading& reading) const {
  if (!has_been_busy_ || !last_ || is_busy(*last_, reading)) return false;
  return !traffic_at_ || reading.time >= *traffic_at_ + traffic_interval_;
}

void ProgressMeter::add(Reading reading) {
  if (last_ && reading.time < last_->time + kShortestInterval) return;
  if (!last_) has_been_busy_ = has_started(reading);
  if (last_ && reading.time <= last_->time + kLongestInterval) {
    update_quiet(reading);
  } else {
    traffic_at_.reset();
    quiet_since_.reset();
    stopped_since_.reset();
    uninterruptible_since_.reset();
  }
  if (has_been_busy_) update_states(reading);
  last_ = std::move(reading);
}

void ProgressMeter::update_quiet(const Reading& reading) {
  const bool was_busy = is_busy(*last_, reading);
  const bool is_asked = needs_traffic(reading);
  has_been_busy_ = has_been_busy_ || was_busy;
  if (was_busy || !has_been_busy_) {
    quiet_since_.reset();
    traffic_at_.reset();
  } else if (is_asked) {
    // The first one of a quiet period may have moved before.
    update(quiet_since_, traffic_at_ && !has_moved(reading), traffic_at_.value_or(reading.time));
    traffic_ = reading.traffic;
    traffic_at_ = reading.time;
  }
}

// Traffic that is known for one of the two readings only may have changed. A kernel that refuses
// tells it for none, and then the rest has to do.
bool ProgressMeter::has_moved(const Reading& reading) const {
  if (!reading.traffic || !traffic_) return reading.traffic != traffic_;
  if (reading.traffic->sockets != traffic_->sockets) return true;
  const auto [least, most] = std::minmax(reading.traffic->bytes, traffic_->bytes);
  const std::chrono::duration<double> interval = reading.time - *traffic_at_;
  return static_cast<double>(most - least) > kHeartbeatBytesPerSecond * interval.count();
}

void ProgressMeter::update_states(const Reading& reading) {
  const Process* stopped = find_stopped(reading);
  const auto earlier = !last_ || stopped == nullptr ? nullptr : find(last_->processes, 0, *stopped);
  const bool has_run = earlier != nullptr && earlier->cpu != stopped->cpu;
  if (has_run || (stopped != nullptr && stopped->pid != stopped_process_)) stopped_since_.reset();
  stopped_process_ = stopped == nullptr ? 0 : stopped->pid;
  const bool has_uninterruptible =
      std::ranges::find(reading.processes, 'D', &Process::state) != reading.processes.end();
  update(stopped_since_, stopped != nullptr, reading.time);
  update(uninterruptible_since_, has_uninterruptible, reading.time);
}

}  // namespace ddp::watch
