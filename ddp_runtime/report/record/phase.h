// SPDX-License-Identifier: Apache-2.0
// The phases of a training step, in drawing order.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace ddp::report {

// `waiting` is the part of exposed communication spent waiting for later ranks, if that is known;
// exposed_comm is then the rest.
enum class Phase { data, forward, backward, exposed_comm, optimizer, checkpoint, other, waiting };

inline constexpr std::size_t kPhases = 8;

struct PhaseName {
  Phase phase;
  std::string_view key;    // in run.json and in JSON reports
  std::string_view name;   // display name
  std::string_view brief;  // for column headings
};

inline constexpr std::array<PhaseName, kPhases> kPhaseNames{{
    {Phase::data, "data", "data", "data"},
    {Phase::forward, "forward", "forward", "forward"},
    {Phase::backward, "backward", "backward", "backward"},
    {Phase::waiting, "waiting", "waiting for other ranks", "waiting"},
    {Phase::exposed_comm, "exposed_comm", "exposed communication", "exposed comm"},
    {Phase::optimizer, "optimizer", "optimizer", "optimizer"},
    {Phase::checkpoint, "checkpoint", "checkpoint", "checkpoint"},
    {Phase::other, "other", "other", "other"},
}};

constexpr std::size_t index_of(Phase phase) noexcept {
  return static_cast<std::size_t>(phase);
}

}  // namespace ddp::report
