// SPDX-License-Identifier: Apache-2.0
// The phases of a step, and the communication in it.
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

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace ddp::profile
