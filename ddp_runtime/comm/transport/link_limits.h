// SPDX-License-Identifier: Apache-2.0
// How messages are cut into segments, and how long a collective may wait.
#pragma once

#include <chrono>
#include <cstddef>

namespace ddp::comm {

// A group's constructor throws std::invalid_argument if segment_bytes or window is 0.
struct LinkLimits {
  // Messages are sent in segments of this many bytes, so that the reduction of one segment overlaps
  // the transfer of the next. Tests set a few bytes to reach the many-segment paths with small
  // data.
  //
  // The default is just below 64 KiB, the limit for eager sends over TCP in Open MPI. For a larger
  // segment, sender and receiver first exchange control messages, which queue behind the data that
  // already fills the wire in both directions. See docs/collectives.md for the measurements.
  std::size_t segment_bytes = std::size_t{60} << 10;
  // Segments of one message in flight at once, in each direction: enough to fill the wire while a
  // rank is adding, but few enough to stay in the cache until they are added.
  std::size_t window = 16;
  // A collective fails if its waits add up to more than this.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // After this long without progress, a collective is investigated: rank 0 checks that all ranks
  // have called the same one.
  std::chrono::milliseconds report_after = std::chrono::seconds(5);
};

}  // namespace ddp::comm
