// SPDX-License-Identifier: Apache-2.0
// Per-thread kernel settings.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace ddp::comm {

// Sets the name that `top -H` and debuggers show; they show 15 characters.
inline void name_this_thread(const std::string& name) noexcept {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

// Makes sleeps of a few microseconds end on time instead of 50 microseconds late.
inline void sleep_precisely() noexcept {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

// Asks for short slices of a core, for a thread that computes little but should begin soon after it
// was woken, although all cores are busy. From Linux 6.12 on, a thread with a short slice comes
// before others; older kernels ignore it.
inline void wake_early() noexcept {
  struct {  // sched_attr, which the C library does not declare
    std::uint32_t size = 48;
    std::uint32_t policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000;  // nanoseconds, the shortest possible
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
  } wanted;
  static_assert(sizeof(wanted) == 48);
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  wanted.nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  syscall(SYS_sched_setattr, 0, &wanted, 0U);
}

}  // namespace ddp::comm
