// SPDX-License-Identifier: Apache-2.0
// Decides when a run saves, and which of its checkpoints are kept for good. Pure: the caller passes
// the time of a steady clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ddp_runtime/train/checkpoint/save_point.h"
#include "ddp_runtime/train/checkpoint/write/save_timer.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

class SaveSchedule {
 public:
  using TimePoint = SaveTimer::TimePoint;

  // `options` must outlive this object; `nodes`: of the job.
  SaveSchedule(const CheckpointOptions& options, std::size_t nodes);

  // Training starts.
  void start(TimePoint now) noexcept { timer_.restart(now); }
  // Whether a save is due by this rank's clock.
  bool time_to_save(TimePoint now) const noexcept { return timer_.due(now); }
  // A save is due from now until begin().
  void request() noexcept { requested_ = true; }
  // Whether a save is due at this position, between two steps or at the end of an epoch, where the
  // position is already that of the next epoch.
  bool due(const Position& position, bool end_of_epoch) const noexcept;
  // Whether a checkpoint of this position is kept for good.
  bool keeps(const Position& position) const noexcept;

  // The position needs no other save from now on: it was resumed from, or its save begins.
  void resumed_at(SavePoint point) noexcept { attempted_ = point; }
  void begin(SavePoint point, std::uint64_t bytes) noexcept;
  // Training continues after `stall` seconds.
  void began(double stall, TimePoint now) noexcept;

  // A save is durable; writing it took this many seconds.
  void completed(double seconds) noexcept;
  // All nodes have written a save, which took this many seconds. Returns what SaveTimer::measured()
  // does.
  std::string measured(double seconds) { return timer_.measured({stall_, seconds}); }
  // Duration of the slowest save until it was durable, estimated before the first one.
  double longest_save_seconds() const noexcept { return longest_; }

 private:
  const CheckpointOptions& options_;
  SaveTimer timer_;
  SavePoint attempted_;
  bool requested_ = false;
  double stall_ = 0;  // seconds that the latest save stopped training
  double longest_ = 0;
};

}  // namespace ddp::train
