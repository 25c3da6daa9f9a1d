// SPDX-License-Identifier: Apache-2.0
// Whether a rank gets on, as far as that is visible from outside: its processes use a processor,
// read or write, come or go, or its TCP connections move more than a heartbeat does. Context
// switches and numbers of system calls are no sign of life: a library's thread wakes 100 times a
// second while the rank hangs. A rank that waits busily, as with NCCL, is not told from one that
// computes.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "spank_plugin/watch/process_tree.h"
#include "spank_plugin/watch/tcp_traffic.h"

namespace ddp::watch {

struct Reading {
  Clock::time_point time;
  std::vector<Process> processes;  // the task of the rank first
  std::optional<TcpTraffic> traffic;
};

// Compares the readings of one rank, about one a second. A period begins at the time of a reading.
// Says nothing about a rank that has done nothing since its start. Periods start anew if two
// readings are more than 5 seconds apart: then the reader itself was stopped, or the node
// overloaded.
class ProgressMeter {
 public:
  // Reads traffic, which is expensive, no more often than this.
  explicit ProgressMeter(Clock::duration traffic_interval = {}) noexcept
      : traffic_interval_(traffic_interval) {}

  // Whether add() needs the traffic of this reading: all else is quiet, and it is time.
  bool needs_traffic(const Reading& reading) const;
  // Ignores a reading that follows the last one within half a second: the ticks that count
  // processor time are too coarse for it.
  void add(Reading reading);

  // Since when there is no progress.
  std::optional<Clock::time_point> quiet_since() const noexcept { return quiet_since_; }
  // Since when a process of it is stopped (SIGSTOP) and has not run in between; and which one.
  std::optional<Clock::time_point> stopped_since() const noexcept { return stopped_since_; }
  pid_t stopped_process() const noexcept { return stopped_process_; }
  // Since when there is always a process of it that waits for a device and cannot be interrupted.
  std::optional<Clock::time_point> uninterruptible_since() const noexcept {
    return uninterruptible_since_;
  }

 private:
  void update_quiet(const Reading& reading);
  void update_states(const Reading& reading);

  bool has_moved(const Reading& reading) const;

  Clock::duration traffic_interval_;
  std::optional<Reading> last_;
  std::optional<TcpTraffic> traffic_;            // when all else was quiet last
  std::optional<Clock::time_point> traffic_at_;  // and when that was
  bool has_been_busy_ = false;
  std::optional<Clock::time_point> quiet_since_;
  std::optional<Clock::time_point> stopped_since_;
  pid_t stopped_process_ = 0;
  std::optional<Clock::time_point> uninterruptible_since_;
};

}  // namespace ddp::watch
