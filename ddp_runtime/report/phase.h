// The parts that a training step's time is split into, in the order in which they are drawn.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace ddp::report {

enum class Phase { data, forward, backward, exposed_comm, optimizer, checkpoint, other };

inline constexpr std::size_t kPhases = 7;

struct PhaseName {
  Phase phase;
  std::string_view key;    // in run.json and in reports for machines
  std::string_view name;   // for people
  std::string_view brief;  // for the head of a column
};

inline constexpr std::array<PhaseName, kPhases> kPhaseNames{{
    {Phase::data, "data", "data", "data"},
    {Phase::forward, "forward", "forward", "forward"},
    {Phase::backward, "backward", "backward", "backward"},
    {Phase::exposed_comm, "exposed_comm", "exposed communication", "exposed comm"},
    {Phase::optimizer, "optimizer", "optimizer", "optimizer"},
    {Phase::checkpoint, "checkpoint", "checkpoint", "checkpoint"},
    {Phase::other, "other", "other", "other"},
}};

constexpr std::size_t index_of(Phase phase) noexcept {
  return static_cast<std::size_t>(phase);
}

}  // namespace ddp::report
