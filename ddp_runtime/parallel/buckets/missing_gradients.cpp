// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/missing_gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace ddp {

std::string describe_missing(const std::vector<std::string>& names, std::size_t all,
                             bool static_graph) {
  constexpr std::size_t kMaxNamed = 8;
  const std::span named(names.data(), std::min(names.size(), kMaxNamed));
  return fmt::format(
      "no gradient for {} of {} parameters ({}{}): they do not affect this loss{}; use every "
      "parameter in forward, freeze those with requires_grad_(false), or set allow_unused",
      names.size(), all, fmt::join(named, ", "), names.size() > named.size() ? ", ..." : "",
      static_graph ? ", although they did in the first step (static_graph)" : "");
}

}  // namespace ddp
