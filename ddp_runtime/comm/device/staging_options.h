// SPDX-License-Identifier: Apache-2.0
// The options of a group that sends GPU memory through the host.
#pragma once

#include <cstddef>

namespace ddp::comm {

struct StagingOptions {
  // Page-locked memory that the collectives of a group or channel may use at a time on each rank.
  // Collectives for which there is no room wait for earlier ones, and a larger buffer is sent in
  // pieces. The smallest value of all ranks counts. Messages between two ranks are not limited,
  // because a rank may have to receive any number of them before it can send.
  std::size_t memory_bytes = std::size_t{256} << 20;
};

}  // namespace ddp::comm
