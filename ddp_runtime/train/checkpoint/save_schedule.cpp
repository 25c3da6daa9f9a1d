// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/save_schedule.h"

#include <algorithm>

namespace ddp::train {
namespace {

// Slower than most disks, so that a run that has not measured its disk stops early enough.
constexpr double kGuessedBytesPerSecond = 100e6;

bool is_multiple(std::int64_t number, std::int64_t of) noexcept {
  return of > 0 && number > 0 && number % of == 0;
}

}  // namespace

SaveSchedule::SaveSchedule(const CheckpointOptions& options, std::size_t nodes)
    : options_(options),
      timer_({.every_seconds = options.every_seconds,
              .young = options.every_auto,
              .mtbf_seconds = mtbf_of_job(options.mtbf_seconds, nodes)}) {}

bool SaveSchedule::due(const Position& position, bool end_of_epoch) const noexcept {
  if (SavePoint::of(position) == attempted_) return false;
  if (requested_ || keeps(position)) return true;
  if (options_.every_steps > 0 && position.step % options_.every_steps == 0) return true;
  return options_.every_epoch && end_of_epoch;
}

bool SaveSchedule::keeps(const Position& position) const noexcept {
  return is_multiple(position.step, options_.keep_every_steps) ||
         (position.consumed == 0 && is_multiple(position.epoch, options_.keep_every_epochs));
}

void SaveSchedule::begin(SavePoint point, std::uint64_t bytes) noexcept {
  attempted_ = point;
  requested_ = false;
  if (longest_ == 0) longest_ = static_cast<double>(bytes) / kGuessedBytesPerSecond;
}

void SaveSchedule::began(double stall, TimePoint now) noexcept {
  stall_ = stall;
  timer_.restart(now);
}

void SaveSchedule::completed(double seconds) noexcept {
  longest_ = std::max(longest_, stall_ + seconds);  // with what came before the writing
}

}  // namespace ddp::train
