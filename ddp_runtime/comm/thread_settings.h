// SPDX-License-Identifier: Apache-2.0
// Per-thread kernel settings.
#pragma once

#include <pthread.h>
#include <sys/prctl.h>

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

}  // namespace ddp::comm
