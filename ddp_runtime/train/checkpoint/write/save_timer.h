// SPDX-License-Identifier: Apache-2.0
// Decides when a save is due by time: after a fixed time, or after Young's interval. Rank 0's
// decides for all. Pure: the caller passes the time of a steady clock, which jumps of the wall
// clock do not affect.
//
// Young's interval is in base/young.h. Its stall is only the time that a save stops training: the
// copying, not the writing in the background.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace ddp::train {

// The MTBF of a node if the user does not give that of the job: 419 unexpected interruptions of
// 16,384 GPUs, 8 per node, in 54 days ("The Llama 3 Herd of Models", arXiv 2407.21783,
// section 3.3.4).
inline constexpr double kNodeMtbfSeconds = 6334.0 * 3600;

// The MTBF of a job on so many nodes. `given`: by the user; 0: not.
inline double mtbf_of_job(double given, std::size_t nodes) noexcept {
  return given > 0 ? given : kNodeMtbfSeconds / static_cast<double>(nodes);
}

// The limits of Young's interval. Saves more often than twice the time until one is durable would
// wait for each other, and an operator expects a checkpoint within two hours.
inline constexpr double kMinYoungSeconds = 30;
inline constexpr double kMaxYoungSeconds = 7200;
inline constexpr double kMinDurableTimes = 2;

// Training time before the first save, whose cost is not yet known.
inline constexpr double kFirstYoungSeconds = 60;

struct SaveCost {
  double stall = 0;    // seconds that a save stops training
  double durable = 0;  // seconds until it is durable
};

// Seconds between two saves, within the limits above.
double young_seconds(const SaveCost& cost, double mtbf_seconds) noexcept;

struct SaveTimerSettings {
  double every_seconds = 0;  // 0: not after a fixed time
  bool young = false;
  double mtbf_seconds = 0;                         // of the job; for `young`
  const char* option = "--checkpoint-every auto";  // that asks for `young`, for people
};

class SaveTimer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit SaveTimer(const SaveTimerSettings& settings) noexcept : settings_(settings) {}

  // Measures the time from `now`: call it when training starts, and when it continues after the
  // stall of a save.
  void restart(TimePoint now) noexcept { since_ = now; }
  bool due(TimePoint now) const noexcept;

  // Takes the cost of a save into account: the mean of it and of what earlier ones cost. Returns a
  // sentence for the user when Young's interval is known for the first time, and when it has
  // changed by more than half since the last sentence; otherwise an empty text.
  std::string measured(const SaveCost& cost);

 private:
  SaveTimerSettings settings_;
  TimePoint since_;
  SaveCost cost_;
  double young_ = kFirstYoungSeconds;
  double announced_ = 0;  // 0: not yet
};

}  // namespace ddp::train
