// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/cut.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "ddp_runtime/comm/group/call_record.h"

namespace ddp::comm {

Starts even_starts(std::size_t count, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  Starts starts(n + 1);
  for (std::size_t r = 0; r <= n; ++r) starts[r] = r * (count / n) + std::min(r, count % n);
  return starts;
}

Starts starts_of(const Cut& cut, std::size_t count, int ranks) {
  if (cut.sizes.empty()) return even_starts(count, ranks);
  if (cut.sizes.size() != static_cast<std::size_t>(ranks)) {
    throw std::invalid_argument(fmt::format("a buffer is cut into {} parts, but there are {} ranks",
                                            cut.sizes.size(), ranks));
  }
  if (std::any_of(cut.sizes.begin(), cut.sizes.end(), [&](auto size) { return size > count; })) {
    throw std::invalid_argument(
        fmt::format("a part is larger than the buffer of {} elements", count));
  }
  Starts starts(cut.sizes.size() + 1);
  std::partial_sum(cut.sizes.begin(), cut.sizes.end(), starts.begin() + 1);
  if (starts.back() != count) {
    throw std::invalid_argument(fmt::format(
        "a buffer of {} elements is cut into parts of {} in total", count, starts.back()));
  }
  return starts;
}

std::string describe(const Buffer& whole, const Cut& cut) {
  constexpr std::size_t kListed = 8;
  std::string all = describe(whole);
  if (cut.sizes.empty()) return all;
  if (cut.sizes.size() <= kListed) {
    return fmt::format("{} in parts of {}", all, fmt::join(cut.sizes, ", "));
  }
  return fmt::format("{} in parts with checksum {:x}", all,
                     hash_on(0, fmt::format("{}", fmt::join(cut.sizes, ","))));
}

}  // namespace ddp::comm
