// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace ddp::comm {
namespace {

// Enough for any job. An unlimited soft limit would slow down programs that close every descriptor
// up to the limit, which would take minutes.
constexpr rlim_t kEnough = rlim_t{1} << 20;

}  // namespace

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ddp::comm
