// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/node/node_barrier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddp::comm {
namespace {

// Number of spins before a waiting rank sleeps. A wake-up through the kernel takes some tens of
// microseconds; spinning much longer would only take the core from the other ranks.
constexpr int kSpins = 2000;
constexpr timespec kNap{0, 20'000'000};

// Not FUTEX_PRIVATE: the word is shared between processes.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &kNap, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Compares by distance, because counters wrap around.
bool reached(std::uint32_t count, std::uint32_t until) {
  return static_cast<std::int32_t>(count - until) >= 0;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void NodeBarrier::wait(const std::function<void(std::size_t)>& check) {
  ++passed_;
  ArrivalCounter& mine = *counters_[me_];
  mine.arrivals.store(passed_, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) > 0) wake_all(mine.arrivals);
  for (std::size_t place = 0; place < counters_.size(); ++place) {
    if (place != me_) wait_for(*counters_[place], passed_, [&] { check(place); });
  }
}

void NodeBarrier::wait_for(ArrivalCounter& counter, std::uint32_t until,
                           const std::function<void()>& check) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (reached(counter.arrivals.load(std::memory_order_acquire), until)) return;
    relax();
  }
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const std::uint32_t seen = counter.arrivals.load(std::memory_order_seq_cst);
    if (reached(seen, until)) break;
    sleep_while(counter.arrivals, seen);
    try {
      check();
    } catch (...) {
      counter.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      throw;
    }
  }
  counter.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace ddp::comm
