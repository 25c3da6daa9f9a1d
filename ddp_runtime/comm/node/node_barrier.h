// SPDX-License-Identifier: Apache-2.0
// A barrier between the ranks of one node, in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace ddp::comm {

// The counter of one rank, in that rank's shared memory and on a separate cache line.
struct alignas(64) ArrivalCounter {
  std::atomic<std::uint32_t> arrivals{0};
  std::atomic<std::uint32_t> sleepers{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "counters are shared by processes");

// Each rank counts its own arrivals and waits until all others have counted the same number. A
// waiting rank spins for a few microseconds and then sleeps in the kernel (futex), because other
// threads need the core for computing.
class NodeBarrier {
 public:
  // counters[p] is the counter of the rank at place p; `me` is this rank's place. The counters must
  // be in memory that starts as zeros.
  NodeBarrier(std::vector<ArrivalCounter*> counters, std::size_t me)
      : counters_(std::move(counters)), me_(me) {}

  // Returns when all ranks of the node have called it as often as this one. Calls `check(place)`
  // from time to time with the place of the missing rank; `check` ends the wait by throwing.
  void wait(const std::function<void(std::size_t place)>& check);

 private:
  static void wait_for(ArrivalCounter& counter, std::uint32_t until,
                       const std::function<void()>& check);

  std::vector<ArrivalCounter*> counters_;
  std::size_t me_;
  std::uint32_t passed_ = 0;
};

}  // namespace ddp::comm
