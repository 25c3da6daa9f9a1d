// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace ddp {
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

std::string out_of_descriptors(std::size_t missing, std::size_t others) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return "rank 0 has no file descriptor left for its connections to the other ranks (" +
         std::to_string(missing) + " of " + std::to_string(others) + " are missing, the limit is " +
         std::to_string(limit.rlim_cur) + "); raise the limit of the nodes (ulimit -Hn)";
}

}  // namespace ddp
