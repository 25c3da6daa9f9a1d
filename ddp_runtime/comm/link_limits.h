// SPDX-License-Identifier: Apache-2.0
// How messages are cut into segments, and how long a collective may wait.
#pragma once

#include <chrono>
#include <cstddef>

namespace ddp::comm {

// Neither segment_bytes nor window may be 0: a group's constructor throws std::invalid_argument.
struct LinkLimits {
  // Messages travel in segments of this many bytes, so that work on one overlaps the next. Tests
  // set a few bytes to reach the many-segment paths with small data.
  //
  // Just below the 64 KiB up to which Open MPI sends over TCP eagerly: for a larger segment sender
  // and receiver first exchange control messages, which queue up behind the data that already fills
  // the wire, in both directions. See docs/collectives.md for the measurements.
  std::size_t segment_bytes = std::size_t{60} << 10;
  // Segments of one message in flight at once, in each direction: enough bytes to fill the wire
  // while a rank is busy adding, few enough to stay in the cache until they are added.
  std::size_t window = 16;
  // A collective whose waits add up to more than this has lost a peer.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // A collective in which nothing moves for this long is investigated: have all ranks called the
  // same one?
  std::chrono::milliseconds report_after = std::chrono::seconds(5);
};

}  // namespace ddp::comm
