// SPDX-License-Identifier: Apache-2.0
// What the time of an elastic run is used for. Each moment has exactly one use, so the uses sum to
// the wall time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::elastic {

// Whole microseconds, so that sums are exact.
using Micros = std::int64_t;

enum class Use : std::uint8_t {
  productive,        // steps that are in the final state, counted once
  repeat,            // steps that are done again, because their results were lost
  detect,            // from a failure until it is noticed
  stop,              // until no process of the generation is left
  launch,            // from the start of processes until the program loads a state, or trains
  load,              // the program loads a checkpoint
  checkpoint_stall,  // training waits for a checkpoint
  degraded,          // the part of the steps' time that the missing nodes would have saved
  waiting,           // no process runs: pauses, checks of nodes, too few nodes
  queue,             // between two jobs
  other,             // the program does something else: evaluation, callbacks, its end
};
inline constexpr std::size_t kUses = 11;

inline constexpr std::array<std::string_view, kUses> kUseNames = {
    "productive",       "repeat",   "detect",  "stop",  "launch", "load",
    "checkpoint_stall", "degraded", "waiting", "queue", "other"};

// Microseconds by use.
class Uses {
 public:
  Micros& operator[](Use use) { return micros_[static_cast<std::size_t>(use)]; }
  Micros operator[](Use use) const { return micros_[static_cast<std::size_t>(use)]; }
  Uses& operator+=(const Uses& other) {
    for (std::size_t i = 0; i < kUses; ++i) micros_[i] += other.micros_[i];
    return *this;
  }
  Micros total() const {
    Micros sum = 0;
    for (const auto one : micros_) sum += one;
    return sum;
  }

  bool operator==(const Uses&) const = default;

 private:
  std::array<Micros, kUses> micros_{};
};

}  // namespace ddp::elastic
